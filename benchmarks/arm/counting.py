"""What a kernel executes on a phone's processor, instruction by instruction: counted by an emulator, always the same.

qemu translates a program block by block. Told so, it logs every block's instructions when it translates it, and every
block it enters: together that is how often each instruction ran. No plugin: a static qemu takes none.
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

# What is counted lies between these two: the rest is the program around the core.
FIRST, LAST = "core_pool_run", "core_pool_shutdown"


@dataclass(frozen=True)
class Instruction:
    address: int
    text: str
    function: str


@dataclass
class Executed:
    """Instructions by address, and how often each ran."""

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
    """On one thread."""
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
            place, symbol = _entered(line)
            if symbol in {FIRST, LAST}:
                inside = symbol == FIRST
            if inside:
                entered[place] += 1
        elif line.startswith("IN:"):
            block = list(_block(line[3:].strip(), rows))
            if block:
                counted.add(blocks.get(block[0].address, ()), entered.pop(block[0].address, 0))  # as it was so far
                blocks[block[0].address] = block
    for place, times in entered.items():
        counted.add(blocks[place], times)
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
    """Kinds of steps that no kernel is made for. How fast multiply-adds can go is not to be counted."""
    return set(Kind) - {kernel.kind for kernel in kernels} - {Kind.FMA_PEAK}
