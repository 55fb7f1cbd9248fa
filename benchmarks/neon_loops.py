"""How much of a phone's big core the inner loops use, without a phone.

    python -m benchmarks.neon_loops

Compiles the kernels for a Cortex-A76 as the build does, cuts the innermost loops out of the assembly and lets llvm-mca
schedule them. llvm-mca knows the A76 only as a Cortex-A57 up to LLVM 22, which halves it; `neoverse-n1` is the
server version of the same core, with the same two multiply-add pipes of 128 bits. It ignores caches: this proves the
loop, not the layer.

Exit code 1 if a loop of the GEMM tiles reaches less than 95 % of two multiply-adds a cycle, or keeps sums on the stack.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from phone_agent.core import build

MCA = "llvm-mca-19"
MODEL = "neoverse-n1"
PIPES = 2
WANTED = 0.95
GEMM = re.compile(r"^(micro_(dot|outer)|(dot|outer)_ahead)")
ITERATIONS = 1000

_LABEL = re.compile(r"^(\.?[A-Za-z_][\w.$]*):")
_BRANCH = re.compile(r"^\s+(?:b\.\w+|b|cbn?z|tbn?z)\s+.*?(\.L\w+)\s*$")
_FMA = re.compile(r"^\s+fml[as]\s+v\d+\.(?:4s|2s|8h|4h)")
_BY_LANE = re.compile(r"^\s+fml[as]\s.*\.[shd]\[\d\]")
_STACK = re.compile(r"\[sp[\],]")


@dataclass(frozen=True)
class Loop:
    """An innermost loop as it was scheduled."""

    function: str
    body: tuple[str, ...]
    fmas: int
    by_lane: int
    stack: int
    cycles: float

    @property
    def instructions(self) -> int:
        return len(self.body)

    @property
    def share(self) -> float:
        return self.fmas / self.cycles / PIPES

    @property
    def is_gemm(self) -> bool:
        return GEMM.match(self.function) is not None


def main() -> None:
    options = _options()
    if shutil.which(MCA) is None:
        sys.exit(f"{MCA} is missing: apt-get install llvm-19")
    loops = [schedule(name, body) for name, body in hot_loops(assembly(options.isa), options.at_least)]
    loops.sort(key=lambda loop: (not loop.is_gemm, loop.function, -loop.fmas))
    main_loops = _main_loops(loops)
    failing = [loop for loop in main_loops if loop.share < WANTED or loop.stack]
    if options.json:
        print(json.dumps([{**asdict(loop), "share": loop.share} for loop in loops], indent=2))
    else:
        report(loops, main_loops)
    if failing or not main_loops:
        sys.exit(1)


def assembly(isa_name: str) -> list[str]:
    """Of all units, one after the other."""
    isa = next(isa for isa in build.AARCH64_ANDROID.isas if isa.name == isa_name)
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for unit in sorted(build.UNITS.glob("*.c")):
            made = Path(scratch) / "unit.s"
            build._zig(  # noqa: SLF001 - as the build does, but for the last stage
                "cc", "-target", build.AARCH64_ANDROID.triple, f"-mcpu={isa.cpu}", *build._COMPILE,  # noqa: SLF001
                *build.isa_flags(isa), "-Wno-unused-command-line-argument", "-S", str(unit), "-o", str(made),
            )  # fmt: skip
            lines += made.read_text().splitlines()
    return lines


def hot_loops(lines: list[str], at_least: int) -> Iterator[tuple[str, list[str]]]:
    """Innermost loops with so many multiply-adds (GEMM tiles: any): from a label to the branch back to it."""
    function, labels, ended = "", dict[str, int](), -1
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label and not label[1].startswith("."):
            function, labels = label[1], {}
        elif label:
            labels[label[1]] = number
        branch = _BRANCH.match(line)
        if branch and branch[1] in labels and labels[branch[1]] > ended:
            body = [each for each in lines[labels[branch[1]] : number + 1] if _is_instruction(each)]
            ended = number
            if sum(bool(_FMA.match(each)) for each in body) >= (1 if GEMM.match(function) else at_least):
                yield function, body


def schedule(function: str, body: list[str]) -> Loop:
    """Branches inside and at the end are left out: llvm-mca takes the text as straight code."""
    code = "\n".join(line for line in body if not _BRANCH.match(line))
    argv = [MCA, "-mtriple=aarch64", f"-mcpu={MODEL}", f"-iterations={ITERATIONS}", "-instruction-info=0"]
    said = subprocess.run(argv, input=code, capture_output=True, text=True, check=True).stdout
    match = re.search(r"Total Cycles:\s+(\d+)", said)
    assert match is not None
    return Loop(
        function,
        tuple(body),
        sum(bool(_FMA.match(line)) for line in body),
        sum(bool(_BY_LANE.match(line)) for line in body),
        sum(bool(_STACK.search(line)) for line in body),
        int(match[1]) / ITERATIONS,
    )


def _main_loops(loops: list[Loop]) -> list[Loop]:
    """Of each GEMM tile the loop that does the work; shorter ones take up the rest of k."""
    largest: dict[str, Loop] = {}
    for loop in loops:
        if loop.is_gemm and (loop.function not in largest or loop.fmas > largest[loop.function].fmas):
            largest[loop.function] = loop
    return list(largest.values())


def report(loops: list[Loop], main_loops: list[Loop]) -> None:
    table = Table("function", "multiply-adds", "by lane", "instructions", "on stack", "cycles", "of 2 a cycle", "")
    for loop in loops:
        verdict = ""
        if loop in main_loops:
            verdict = "ok" if loop.share >= WANTED and not loop.stack else "BELOW 95 %"
        elif loop.is_gemm:
            verdict = "rest of k"
        numbers = (loop.fmas, loop.by_lane, loop.instructions, loop.stack)
        table.add_row(loop.function, *map(str, numbers), f"{loop.cycles:.2f}", f"{loop.share:.1%}", verdict)
    Console(width=130).print(table)


def _is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.lstrip().startswith((".", "//", "#"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default="neon-fp16", choices=[isa.name for isa in build.AARCH64_ANDROID.isas])
    parser.add_argument("--at-least", type=int, default=14, help="multiply-adds, for a loop to be shown")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
