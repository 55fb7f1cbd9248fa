"""Run cases on an emulated phone processor: the core's objects, linked into a small program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from phone_agent.core import build
from tests.phone_agent.core.guarded import Guard
from tests.phone_agent.core.memory import Array, Case

EMULATOR = "qemu-aarch64-static"
TARGET = build.AARCH64_LINUX
ISAS = tuple(isa.name for isa in TARGET.isas)
# The oldest processor that each ISA must run on. Not `max`: an unsupported instruction must fault.
CPUS = {"neon-fp16": "cortex-a76", "neon": "cortex-a53"}


def is_there() -> bool:
    return shutil.which(EMULATOR) is not None


@cache
def runner(directory: Path) -> Path:
    """Built once per directory."""
    source = Path(__file__).with_name("runner.c")
    return build.build_program(TARGET, source, directory / "runner")


class QemuExitError(Exception):
    """The emulated program ended early; `done` is the number of finished cases."""

    def __init__(self, done: int, how: str) -> None:
        super().__init__(how)
        self.done = done


def runs_here(program: Path, cpu: str) -> dict[str, bool]:
    """Which ISAs of the core are supported on that processor."""
    return dict(zip(ISAS, _answer(program, cpu, _words(0, 1, 0, 0)).isas, strict=True))


def run(program: Path, cases: Sequence[Case], isa: str, threads: int, guard: Guard) -> list[dict[int, Array]]:
    """The contents of each case's blocks after the run, by the block's id."""
    answer = _answer(program, CPUS[isa], written(cases, isa, threads, guard))
    place, results = 0, []
    for done, case in enumerate(cases):
        result: dict[int, Array] = {}
        for memory in case.op.reachable():
            content = memory.content(threads)
            part = answer.blocks[place : place + content.nbytes]
            if len(part) < content.nbytes:
                raise QemuExitError(done, f"{case.name}: {answer.end}")
            result[id(memory)] = np.frombuffer(part, content.dtype)
            place += content.nbytes
        results.append(result)
    return results


def written(cases: Sequence[Case], isa: str, threads: int, guard: Guard = Guard.BEHIND) -> bytes:
    """The input of the runner; runner.c documents the format."""
    start = _words(ISAS.index(isa), threads, guard is Guard.BEFORE, len(cases))
    return b"".join([start, *(_written(case, threads) for case in cases)])


class _Answer:
    def __init__(self, raw: bytes, end: str) -> None:
        count = int(np.frombuffer(raw[:8], np.int64)[0])
        self.isas = [bool(word) for word in np.frombuffer(raw[8 : 8 + 8 * count], np.int64)]
        self.blocks = raw[8 + 8 * count :]
        self.end = end


def _answer(program: Path, cpu: str, text: bytes) -> _Answer:
    done = subprocess.run([EMULATOR, "-cpu", cpu, str(program)], input=text, capture_output=True, check=False)
    end = f"ended with {done.returncode} (-11: touched memory outside its tensors) {done.stderr.decode()[-500:]}"
    if len(done.stdout) < 8:
        raise QemuExitError(0, end)
    return _Answer(done.stdout, end)


def _words(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


def _written(case: Case, threads: int) -> bytes:
    blocks = list(case.op.reachable())
    number = {id(memory): index for index, memory in enumerate(blocks)}
    parts = [_words(case.kind, len(blocks))]
    for memory in blocks:
        content = memory.content(threads)
        pointers = [value for offset, target in memory.pointers for value in (offset, number[id(target)])]
        parts += [_words(content.nbytes, len(memory.pointers), *pointers), content.tobytes()]
    return b"".join(parts)
