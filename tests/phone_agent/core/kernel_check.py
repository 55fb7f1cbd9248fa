"""Check one kernel on all shapes, in a subprocess, because an out-of-bounds access ends the process:

    python -m tests.phone_agent.core.kernel_check CONV_FORWARD --isa avx2 --threads 1 2 3 --full --only winograd

Prints what went wrong, by case; nothing when all is right.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from phone_agent.core.library import isas, library
from phone_agent.core.ops import Kind
from tests.phone_agent.core import host, qemu
from tests.phone_agent.core.cases import CASES
from tests.phone_agent.core.guarded import Guard
from tests.phone_agent.core.memory import GAPS, Array, Case, Wanted

THREADS = (1, 2, 3)


def differences(case: Case, after: dict[int, Array], threads: int) -> list[str]:
    """Descriptions of what differs from the expected result."""
    wanted = {id(item.memory): item for item in case.wanted}
    scratch = {id(memory) for memory in case.scratch}
    found = []
    for memory in case.op.reachable():
        got = after[id(memory)]
        if id(memory) in wanted:
            found += _compare(wanted[id(memory)], got, threads)
        elif id(memory) not in scratch and not memory.pointers and not _same(got, memory.content(threads)):
            found.append(f"{memory.name}: was changed, and is only to be read")
    return found


def _same(left: Array, right: Array) -> bool:
    return left.tobytes() == right.tobytes()


def _compare(wanted: Wanted, got: Array, threads: int) -> list[str]:
    name, want = wanted.memory.name, wanted.values
    if wanted.memory.per_thread:
        got = got.reshape(threads, -1).sum(axis=0)
    if wanted.tolerance == 0 or want.dtype.kind in "ui":
        wrong = np.flatnonzero(~((got == want) | (np.isnan(got) & np.isnan(want))))
        if not len(wrong):
            return []
        first = wrong[0]
        return [f"{name}: {len(wrong)} of {len(want)} differ, first [{first}] = {got[first]}, not {want[first]}"]
    missing = np.flatnonzero(np.isnan(got))
    if len(missing):
        return [
            f"{name}: {len(missing)} of {len(want)} are not numbers (not written, or poisoned), first [{missing[0]}]"
        ]
    errors = np.abs(got - want)
    gaps = np.isin(want, GAPS)
    if (errors[gaps] != 0).any():
        return [f"{name}: wrote between the rows, first at [{np.flatnonzero(gaps & (errors != 0))[0]}]"]
    largest = max(float(np.abs(want[~gaps]).max(initial=0)), 1e-30)
    worst = int(errors.argmax())
    relative = float(errors[worst]) / largest
    if relative <= wanted.tolerance:
        return []
    count = int((errors > wanted.tolerance * largest).sum())
    over = f"error {relative:.1e} of its largest, {wanted.tolerance:.0e} allowed; {count} of {len(want)} over"
    return [f"{name}: {over}, worst [{worst}] = {got[worst]:.7g}, not {want[worst]:.7g}"]


def _run(kind: Kind, names: Iterable[str], threads: Sequence[int], only: str, *, full: bool) -> None:
    for case in CASES[kind](full=full):
        if only not in case.name:
            continue
        for isa in names:
            for count in threads:
                for guard in Guard:
                    _print(f"> {case.name}; {isa}, {count} threads, guard {guard.value}")
                    _check_case(case, isa, count, guard)
    _print("> done")


def _check_case(case: Case, isa: str, threads: int, guard: Guard) -> None:
    after = host.run(case, isa, threads, guard)
    found = differences(case, after, threads)
    if threads == THREADS[-1] and guard is Guard.BEHIND:
        again = host.run(case, isa, threads, guard)
        found += [
            f"{item.memory.name}: other bits the second time"
            for item in case.wanted
            if not _is_reproducible(item, after, again)
        ]
    for line in found:
        _print(f"! {line}")


def _is_reproducible(item: Wanted, after: dict[int, Array], again: dict[int, Array]) -> bool:
    """Tiles are scheduled dynamically, but sums must not depend on which thread computed which tile."""
    return item.memory.per_thread or _same(after[id(item.memory)], again[id(item.memory)])


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def check_in_subprocess(
    kind: Kind, names: Sequence[str], threads: Iterable[int] = THREADS, *, full: bool = False, only: str = ""
) -> list[str]:
    """Lines that describe what is wrong."""
    command = [sys.executable, "-m", "tests.phone_agent.core.kernel_check", kind.name, "--child", f"--only={only}"]
    command += [word for name in names for word in ("--isa", name)]
    command += ["--threads", *map(str, threads)] + (["--full"] if full else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wrong, running = [], ""
    for line in done.stdout.splitlines():
        if line.startswith("> "):
            running = line[2:]
        else:
            wrong.append(f"{running}: {line[2:]}")
    if running != "done":
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        wrong.append(f"{running}: died of {how} (11, 7: touched memory outside its tensors)\n{done.stderr[-2000:]}")
    return wrong


def check_on_qemu(
    kind: Kind, names: Sequence[str], threads: Iterable[int], *, full: bool = False, only: str = ""
) -> list[str]:
    """The same on a processor that qemu emulates."""
    cases = [case for case in CASES[kind](full=full) if only in case.name]
    with tempfile.TemporaryDirectory() as scratch:
        program = qemu.runner(Path(scratch))
        ways = [(isa, count, guard) for isa in names for count in threads for guard in Guard]
        return [line for way in ways for line in on_qemu(program, cases, *way)]


def on_qemu(program: Path, cases: Sequence[Case], isa: str, threads: int, guard: Guard) -> Iterator[str]:
    how = f"{threads} threads, guard {guard.value}"
    try:
        results = qemu.run(program, cases, isa, threads, guard)
    except qemu.QemuExitError as ended:
        yield f"{ended}; {how}"
        return
    for case, after in zip(cases, results, strict=True):
        yield from (f"{case.name}; {how}: {line}" for line in differences(case, after, threads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[kind.name for kind in CASES] + ["ALL"])
    here = isas(library())
    parser.add_argument("--isa", choices=[*here, *qemu.ISAS], action="append", help="default: all this processor has")
    parser.add_argument("--threads", type=int, nargs="+", default=list(THREADS))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kinds = list(CASES) if arguments.kind == "ALL" else [Kind[arguments.kind]]
    if arguments.child:
        _run(kinds[0], arguments.isa, arguments.threads, arguments.only, full=arguments.full)
        return
    failed = False
    for kind in kinds:
        for isa in arguments.isa or here:
            started = time.monotonic()
            run = check_in_subprocess if isa in here else check_on_qemu
            wrong = run(kind, [isa], arguments.threads, full=arguments.full, only=arguments.only)
            failed |= bool(wrong)
            _print(f"{kind.name} {isa}: {len(wrong)} wrong, {time.monotonic() - started:.1f} s")
            for line in wrong[:20]:
                _print(f"    {line}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
