"""The innermost loops of an execution, and their schedule on a big core.

Up to LLVM 22, llvm-mca models the Cortex-A76 as a Cortex-A57, with half its throughput. `neoverse-n1` is the server
version of the same core, with the same two 128-bit arithmetic pipes and two memory pipes. Caches are ignored.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.arm.counting import Executed, Instruction

MCA = "llvm-mca-19"
MODEL = "neoverse-n1"
ITERATIONS = 400
OUTSIDE_RATE = 2.0  # instructions per cycle outside the loops: an assumption, because they are not scheduled
SMALL = 0.005  # of all instructions; smaller loops count as outside
USUAL = 0.5  # of the iterations; instructions that run less often are left out of the body

_BRANCH = re.compile(r"^(b|bl|b\.\w+|cbn?z|tbn?z)\s(?:.*[ ,])?#(0x[0-9a-f]+)$")
_JUMP = re.compile(r"^(b|bl|blr|br|ret|b\.\w+|cbn?z|tbn?z)\b")
_FMA = re.compile(r"^fml[as] v\d+\.")
_ARITHMETIC = re.compile(r"^f(?!mov|cvt)\w+ v\d+\.")
# Instructions that only one of the two pipes executes, and their cycles: divisions and conversions.
_SINGLE_PIPE = (
    (re.compile(r"^f(div|sqrt) v\d+\.(4s|2d)"), 7.0),
    (re.compile(r"^fcvt(n|l)2? v\d+\.(4h|8h|4s), v\d+\.(4s|4h|8h)"), 2.0),
    (re.compile(r"^(fcvt|[su]cvtf)\w* v\d+\."), 1.0),
)
_LOAD = re.compile(r"^(ldr|ldur|ldp|ldnp|ld1r?) \{?\s*(q|v)")
_STORE = re.compile(r"^(str|stur|stp|stnp|st1) \{?\s*(q|v)")
_ADDRESS = re.compile(r"^(adrp? \w+,) #0x[0-9a-f]+")
_MOVED_AFTER = re.compile(r"^((?:ld|st).*, )\[(\w+)\], (#-?\w+)$")
_MOVED_BEFORE = re.compile(r"^((?:ld|st).*, )\[(\w+), (#-?\w+)\]!$")
_STACK = re.compile(r"\[sp[\],]")


@dataclass(frozen=True)
class Loop:
    """One innermost loop."""

    function: str
    body: tuple[str, ...]
    rounds: int
    share: float  # of all instructions of the kernel

    @property
    def multiply_adds(self) -> int:
        return sum(_FMA.match(text) is not None for text in self.body)

    @property
    def stack(self) -> int:
        return sum(_STACK.search(text) is not None for text in self.body)

    @property
    def limit(self) -> float:
        """Cycles that the arithmetic alone, or the loads and stores alone, would take: two pipes each."""
        return max(self._arithmetic, self._memory)

    @property
    def bound(self) -> str:
        return "arithmetic" if self._arithmetic >= self._memory else "load/store"

    @property
    def _arithmetic(self) -> float:
        single = sum(map(_single_pipe_cycles, self.body))
        either = sum(_ARITHMETIC.match(text) is not None for text in self.body if not _single_pipe_cycles(text))
        return max(single, (single + either) / 2)

    @property
    def _memory(self) -> float:
        return sum(map(_memory, self.body))


def _single_pipe_cycles(text: str) -> float:
    return next((cycles for pattern, cycles in _SINGLE_PIPE if pattern.match(text)), 0.0)


def _memory(text: str) -> float:
    """A load of 16 bytes takes one of two pipes for a cycle, a store both."""
    pair = 2 if text.startswith(("ldp", "stp", "ldnp", "stnp")) else 1
    if _LOAD.match(text):
        return 0.5 * pair
    return 1.0 * pair if _STORE.match(text) else 0.0


def innermost_loops(counted: Executed, at_least: float = SMALL) -> list[Loop]:
    """Innermost loops with at least this share of all instructions, largest first. A loop extends from the target of a
    backward branch to the branch."""
    found = []
    for start, end in _innermost(list(_branches_back(counted))):
        rounds = counted.times[end]
        inside = [address for address in range(start, end + 1, 4) if counted.times[address]]
        body = tuple(counted.code[a].text for a in inside if counted.times[a] >= USUAL * rounds)
        share = sum(counted.times[a] for a in inside) / counted.total
        if share >= at_least:
            found.append(Loop(counted.code[end].function, body, rounds, share))
    return sorted(found, key=lambda loop: -loop.share)


def _branches_back(counted: Executed) -> Iterator[tuple[int, int]]:
    for address, instruction in counted.code.items():
        branch = _BRANCH.match(instruction.text)
        if branch and branch[1] != "bl" and counted.times[address] and _same_function(counted, instruction, branch[2]):
            yield int(branch[2], 16), address


def _same_function(counted: Executed, branch: Instruction, target: str) -> bool:
    there = counted.code.get(int(target, 16))
    return there is not None and there.function == branch.function and there.address <= branch.address


def _innermost(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of several branches to the same target, the last one closes the loop."""
    ends: dict[int, int] = {}
    for start, end in spans:
        ends[start] = max(end, ends.get(start, end))
    for start, end in ends.items():
        if not any(start < other <= end for other in ends):
            yield start, end


def scheduled(bodies: Sequence[Sequence[str]]) -> list[float]:
    """Cycles per iteration of each loop."""
    if not bodies:
        return []
    code = "\n".join(
        f"# LLVM-MCA-BEGIN {index}\n{_assembly(body)}\n# LLVM-MCA-END" for index, body in enumerate(bodies)
    )
    argv = [MCA, "-mtriple=aarch64", f"-mcpu={MODEL}", f"-iterations={ITERATIONS}", "-instruction-info=0"]
    done = subprocess.run(argv, input=code, capture_output=True, text=True, check=False)
    cycles = re.findall(r"^Total Cycles:\s+(\d+)", done.stdout, re.MULTILINE)
    if done.returncode or len(cycles) != len(bodies):
        raise RuntimeError(f"{MCA} rejected the code: {done.stderr.strip()[:2000]}")
    return [int(each) / ITERATIONS for each in cycles]


def _assembly(body: Sequence[str]) -> str:
    """Straight-line code: branches of a loop are predicted, and calls are left out."""
    return "\n".join(_plain(text) for text in body if not _JUMP.match(text)) or "nop"


def _plain(text: str) -> str:
    """Split post- and pre-indexed accesses into the access and an addition, as the processor does: llvm-mca would make
    the next iteration wait for the stored value. Addresses of constants are replaced by 0."""
    after, before = _MOVED_AFTER.match(text), _MOVED_BEFORE.match(text)
    if after:
        return f"{after[1]}[{after[2]}]\nadd {after[2]}, {after[2]}, {after[3]}"
    if before:
        return f"add {before[2]}, {before[2]}, {before[3]}\n{before[1]}[{before[2]}]"
    return _ADDRESS.sub(r"\1 #0", text)


def modeled_cycles(counted: Executed, loops: Sequence[Loop], cycles: Sequence[float]) -> float:
    """Modeled cycles of the whole kernel."""
    outside = counted.total * (1 - sum(loop.share for loop in loops))
    return sum(loop.rounds * each for loop, each in zip(loops, cycles, strict=True)) + outside / OUTSIDE_RATE
