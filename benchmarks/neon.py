"""Efficiency of the kernels on a phone's big core, without a phone.

    python -m benchmarks.neon
    python -m benchmarks.neon --only winograd --isa neon
    python -m benchmarks.neon --check          compare with benchmarks/arm/baseline.json; --update rewrites it

Every kernel runs on an emulated processor that counts each instruction (benchmarks/arm/counting.py), so the counts are
reproducible. llvm-mca then schedules its innermost loops for the Neoverse N1, the server version of the Cortex-A76
(benchmarks/arm/loops.py), and the result is compared with the limit of the arithmetic or of the loads and stores alone.
Both give a model of whole training steps on a phone (benchmarks/arm/step.py). Caches are not modeled, and nothing here
was measured on a phone.

Exit code 1 if a GEMM loop reaches less than 95% of two multiply-adds per cycle or spills accumulators to the stack;
with --check also if a kernel takes more instructions or cycles than in the baseline.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from importlib import metadata
from math import exp, log
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.arm import step
from benchmarks.arm.counting import executed
from benchmarks.arm.kernels import Kernel, kernels
from benchmarks.arm.loops import MCA, Loop, innermost_loops, modeled_cycles, scheduled
from benchmarks.networks import TABLE_I, network
from orchestrator.plan.forecast.device_model import GALAXY_S10_PLUS, KernelCost
from phone_agent.core import build
from tests.phone_agent.core import qemu

BASELINE = Path(__file__).parent / "arm/baseline.json"
MAX_INSTRUCTION_RATIO, MAX_CYCLE_RATIO = 1.01, 1.02  # to the baseline; more is a regression
GEMM_KERNEL = re.compile(r"^f(32|64)_gemm_")
MIN_GEMM_SHARE = 0.95
HOT = 0.05  # smallest share of a kernel's instructions for a loop to be listed
BEST = build.AARCH64_ANDROID.isas[0].name


@dataclass(frozen=True)
class Scheduled:
    loop: Loop
    cycles: float  # per iteration

    @property
    def share(self) -> float:
        """Fraction of the limit that it reaches."""
        return self.loop.limit / self.cycles

    @property
    def is_gemm(self) -> bool:
        return GEMM_KERNEL.match(self.loop.function) is not None

    @property
    def is_slow(self) -> bool:
        return self.is_gemm and (self.share < MIN_GEMM_SHARE or self.loop.stack > 0)


@dataclass(frozen=True)
class Evaluation:
    kernel: Kernel
    isa: str
    instructions: int
    cycles: float
    hot: tuple[Scheduled, ...]

    @property
    def multiply_add_share(self) -> float:
        """Fraction of two multiply-adds per cycle, by the flops of the direct method: Winograd exceeds 1."""
        per_cycle = step.FLOPS_PER_CYCLE / 2 if self.kernel.in_double else step.FLOPS_PER_CYCLE
        return self.kernel.flops / per_cycle / self.cycles

    @property
    def cost(self) -> KernelCost:
        return cost_of(self.kernel, self.cycles)


def cost_of(kernel: Kernel, cycles: float) -> KernelCost:
    flops, moved = kernel.flops, kernel.bytes
    return KernelCost(cycles / flops if flops else 0.0, cycles / moved if moved else 0.0)


def main() -> None:
    options = _options()
    _check_tools()
    measured = list(measure_all(options.isa or [isa.name for isa in build.AARCH64_ANDROID.isas], options.only))
    if not measured:
        sys.exit(f"no kernel has '{options.only}' in its name; there are: {', '.join(each.name for each in kernels())}")
    steps = [] if options.only else model(measured)
    if options.json:
        print(json.dumps(_document(measured, steps), indent=2))
    else:
        report(measured, steps)
    if options.update:
        BASELINE.write_text(json.dumps(baseline_of(measured), indent=1) + "\n")
        GALAXY_S10_PLUS.write_text(shipped(json.loads(BASELINE.read_text())))
    wrong = [f"{each.kernel.name} ({each.isa}): {text}" for each in measured for text in _slow_loops(each)]
    if options.check:
        wrong += regressions(measured, json.loads(BASELINE.read_text()))
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


def _check_tools() -> None:
    for tool, package in ((qemu.EMULATOR, "qemu-user-static"), (MCA, "llvm-19")):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: apt-get install {package}")


def measure_all(isas: Sequence[str], only: str) -> Iterator[Evaluation]:
    with tempfile.TemporaryDirectory() as scratch:
        program = qemu.runner(Path(scratch))
        for isa in isas:
            for kernel in kernels():
                if only in kernel.name:
                    yield measure(program, kernel, isa)


def measure(program: Path, kernel: Kernel, isa: str) -> Evaluation:
    counted = executed(program, kernel, isa)
    loops = innermost_loops(counted)
    cycles = scheduled([loop.body for loop in loops])
    hot = tuple(Scheduled(*each) for each in zip(loops, cycles, strict=True) if each[0].share >= HOT)
    return Evaluation(kernel, isa, counted.total, modeled_cycles(counted, loops, cycles), hot)


def model(measured: Sequence[Evaluation]) -> list[step.Modeled]:
    isa = measured[0].isa
    phone = step.galaxy_s10_plus({each.kernel.name: each.cost for each in measured if each.isa == isa})
    return [step.modeled(name, phone) for name in TABLE_I]


def shipped(baseline: Mapping[str, Any]) -> str:
    """The phone model that `clusterctl forecast` uses."""
    counted = baseline["kernels"][BEST]
    phone = step.galaxy_s10_plus({each.name: cost_of(each, counted[each.name]["cycles"]) for each in kernels()})
    costs = {name: [float(f"{part:.5g}") for part in astuple(cost)] for name, cost in phone.costs.items()}
    return json.dumps({**vars(phone), "costs": costs}, indent=1) + "\n"


def baseline_of(measured: Sequence[Evaluation]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for each in measured:
        counted = {"instructions": each.instructions, "cycles": round(each.cycles)}
        numbers.setdefault(each.isa, {})[each.kernel.name] = counted
    return {"compiler": f"ziglang {metadata.version('ziglang')}", "kernels": numbers}


def regressions(measured: Sequence[Evaluation], baseline: Mapping[str, Any]) -> list[str]:
    """Kernels that take more instructions or cycles than in the baseline, as messages."""
    messages = []
    for each in measured:
        before = baseline["kernels"].get(each.isa, {}).get(each.kernel.name)
        title = f"{each.kernel.name} ({each.isa})"
        if before is None:
            messages.append(f"{title} is not in the baseline: --update")
            continue
        messages += _more(title, "instructions", each.instructions, before["instructions"], MAX_INSTRUCTION_RATIO)
        messages += _more(title, "cycles", each.cycles, before["cycles"], MAX_CYCLE_RATIO)
    return messages


def _more(title: str, unit: str, now: float, before: float, allowed: float) -> list[str]:
    return [f"{title}: {now:.0f} {unit}, {before} before: {now / before - 1:+.1%}"] if now > before * allowed else []


def _slow_loops(measured: Evaluation) -> Iterator[str]:
    for each in measured.hot:
        if each.is_slow:
            yield f"{each.loop.function} at {each.share:.1%} of its limit, {each.loop.stack} accesses to the stack"


def report(measured: Sequence[Evaluation], steps: Sequence[step.Modeled]) -> None:
    console = Console(width=150)
    for isa in dict.fromkeys(each.isa for each in measured):
        console.print(_table([each for each in measured if each.isa == isa], isa))
    gain = variant_gain(measured)
    if gain:
        console.print(
            f"{BEST} against neon, geometric mean: {gain[0]:.3f} of the instructions, {gain[1]:.3f} of the cycles"
        )
    if steps:
        console.print(_steps_table(steps, measured[0].isa))
        console.print(f"Modeled, not measured: {step.assumptions(step.galaxy_s10_plus({}))}.", soft_wrap=True)


def _table(measured: Sequence[Evaluation], isa: str) -> Table:
    columns = ("instructions", "cycles", "of 2 FMA", "hot loops", "of it", "fma", "cycles", "limit", "of limit", "")
    table = Table("kernel", *columns, title=f"{isa}: one core, caches not modeled")
    for each in measured:
        share = f"{each.multiply_add_share:.0%}" if each.kernel.flops else ""
        start = (each.kernel.name, f"{each.instructions:,}", f"{each.cycles:,.0f}", share)
        for index, loop in enumerate(each.hot or [None]):
            table.add_row(*(start if index == 0 else [""] * len(start)), *(_cells(loop) if loop else ["-"]))
    return table


def _cells(each: Scheduled) -> list[str]:
    loop, mark = each.loop, ""
    if each.is_gemm:
        mark = f"BELOW {MIN_GEMM_SHARE:.0%}" if each.is_slow else "ok"
    return [
        loop.function, f"{loop.share:.0%}", str(loop.multiply_adds), f"{each.cycles:.1f}",
        f"{loop.limit:.1f} {loop.bound}" if loop.limit else "neither", f"{each.share:.0%}" if loop.limit else "", mark,
    ]  # fmt: skip


def variant_gain(measured: Sequence[Evaluation]) -> tuple[float, float] | None:
    """Geometric means of the best ISA's instructions and cycles over the fallback's."""
    by_name: dict[str, dict[str, Evaluation]] = {}
    for each in measured:
        by_name.setdefault(each.kernel.name, {})[each.isa] = each
    pairs = [(both[BEST], both["neon"]) for both in by_name.values() if len(both) == len(qemu.ISAS)]
    if not pairs:
        return None
    instructions = [new.instructions / old.instructions for new, old in pairs]
    cycles = [new.cycles / old.cycles for new, old in pairs]
    return _mean(instructions), _mean(cycles)


def _mean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def _steps_table(steps: Sequence[step.Modeled], isa: str) -> Table:
    title = f"A training step on a Galaxy S10+, MODELED ({isa}), batches of the paper's Table I"
    table = Table(
        "network", "batch", "ms", "images/s", "hot, images/s", "of peak", "waits for memory", "paper", title=title
    )
    for each in steps:
        graph = network(each.network)
        bound = step.paper_at_most(each.network, graph.parameter_count * 4 / 1e6)
        low, high = (share * each.images_per_s for share in step.galaxy_s10_plus({}).sustained)
        table.add_row(
            each.network,
            str(each.batch),
            f"{each.seconds * 1e3:.0f}",
            f"{each.images_per_s:.1f}",
            f"{low:.1f} - {high:.1f}",
            f"{each.peak_share:.0%}",
            f"{each.memory_share:.0%}",
            f"at most {bound:.1f}" if bound else "unknown",
        )
    return table


def _document(measured: Sequence[Evaluation], steps: Sequence[step.Modeled]) -> dict[str, Any]:
    return {
        "kernels": [_numbers(each) for each in measured],
        "modeled_steps": [{**asdict(each), "images_per_s": each.images_per_s} for each in steps],
        "assumptions": step.assumptions(step.galaxy_s10_plus({})),
    }


def _numbers(each: Evaluation) -> dict[str, Any]:
    loops = [
        {"function": hot.loop.function, "of_kernel": hot.loop.share, "cycles": hot.cycles, "of_limit": hot.share}
        for hot in each.hot
    ]
    sizes = {"instructions": each.instructions, "cycles": each.cycles}
    return {"name": each.kernel.name, "isa": each.isa, **sizes, "loops": loops}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", action="append", choices=qemu.ISAS, help="default: all")
    parser.add_argument("--only", default="", help="part of the names of the kernels to run; no steps are modeled then")
    parser.add_argument("--check", action="store_true", help="against the baseline")
    parser.add_argument("--update", action="store_true", help="write the baseline")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.update and (options.only or options.isa):
        parser.error("--update writes all kernels of all ISAs: leave out --only and --isa")
    return options


if __name__ == "__main__":
    main()
