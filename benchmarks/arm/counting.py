"""Count the instructions that a kernel executes on a phone's processor, in an emulator; the counts are reproducible.

qemu translates a program block by block. With -d it logs the instructions of every translated block and every block
that it enters; together that gives how often each instruction ran. A static qemu supports no plugins.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.arm.kernels import Kernel
from phone_agent.core.ops import Kind
from tests.phone_agent.core import qemu
from tests.phone_agent.core.memory import Case

# Only what runs between these two functions is counted; the rest is the program around the core.
FIRST, LAST = "core_pool_run", "core_pool_shutdown"


@dataclass(frozen=True)
class Instruction:
    address: int
    text: str
    function: str


@dataclass
class Executed:
    """Instructions by address, and how often each was executed."""

    code: dict[int, Instruction] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.times.total()

    def add(self, block: Iterable[Instruction], times: int) -> None:
        for instruction in block:
            self.code[instruction.address] = instruction
            self.times[instruction.address] += times


def executed(program: Path, kernel: Kernel, isa: str) -> Executed:
    """Run the kernel on one thread and count."""
    command = [qemu.EMULATOR, "-cpu", qemu.CPUS[isa], "-d", "in_asm,exec,nochain", str(program)]
    with tempfile.TemporaryFile() as text:
        text.write(qemu.written([Case(kernel.name, kernel.kind, kernel.op, ())], isa, threads=1))
        text.seek(0)
        process = subprocess.Popen(command, stdin=text, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        with process:
            assert process.stderr is not None
            counted = read_log(process.stderr)
    if process.returncode or not counted.total:
        raise qemu.QemuExitError(0, f"{kernel.name}: the emulated program ended with {process.returncode}")
    return counted


def read_log(lines: Iterable[str]) -> Executed:
    counted, blocks, entered = Executed(), dict[int, list[Instruction]](), Counter[int]()
    inside, rows = False, iter(lines)
    for line in rows:
        if line.startswith("Trace"):
            address, symbol = _entered(line)
            if symbol in {FIRST, LAST}:
                inside = symbol == FIRST
            if inside:
                entered[address] += 1
        elif line.startswith("IN:"):
            block = list(_block(line[3:].strip(), rows))
            if block:
                counted.add(
                    blocks.get(block[0].address, ()), entered.pop(block[0].address, 0)
                )  # retranslated: count the old version
                blocks[block[0].address] = block
    for address, times in entered.items():
        counted.add(blocks[address], times)
    return counted


def _entered(line: str) -> tuple[int, str]:
    """`Trace 0: host address [base/guest address/flags/flags] symbol`."""
    before, _, symbol = line.partition("]")
    return int(before.split("/")[1], 16), symbol.strip()


def _block(function: str, lines: Iterator[str]) -> Iterator[Instruction]:
    """`address:  code  text` each, up to an empty line."""
    for line in lines:
        if not line.startswith("0x"):
            return
        address, _, rest = line.partition(":")
        yield Instruction(int(address, 16), " ".join(rest.split()[1:]), function)


def uncounted(kernels: Iterable[Kernel]) -> set[Kind]:
    """Op kinds without a kernel here, except fma_peak, which measures a rate."""
    return set(Kind) - {kernel.kind for kernel in kernels} - {Kind.FMA_PEAK}
