"""Contestants as separate processes, controlled over pipes: one works while the others wait.

A contestant is a module that calls `serve({verb: function})`: it reads one JSON request per line and writes one JSON
answer per line. Each process lives for a whole benchmark, so warm-up happens once, and the contestants take turns of a
few steps each, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
# By default, glibc returns large freed buffers to the kernel, and every step page-faults them in again.
RETAIN_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": "67108864",
}


# On a busy machine, the CPU time of one thread is more reliable than wall-clock time.
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class PeerError(Exception):
    """A contestant reported an error or exited."""


class Peer:
    """A contestant process."""

    def __init__(
        self,
        name: str,
        module: str,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        """`inside` is a command prefix that sets limits and then executes the rest of its arguments."""
        self.name = name
        self._process = subprocess.Popen(
            [*inside, python or sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(f"{self.name} exited with {self._process.wait()}") from None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # output of libraries during import
            sys.stderr.write(line)
            line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self.name} exited with {self._process.wait()} during {verb}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass(frozen=True)
class Times:
    """Step times of one contestant, in seconds."""

    all: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.all)

    @property
    def median(self) -> float:
        return statistics.median(self.all)

    def __add__(self, other: Times) -> Times:
        return Times(self.all + other.all)


def run_in_turns(peers: list[Peer], rounds: int, steps: int, clock: str = "wall") -> dict[str, Times]:
    """`rounds` turns of `steps` measured steps each; the first step of a turn warms up the caches and is dropped."""
    measured: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for turn in range(rounds):
        for peer in peers if turn % 2 == 0 else reversed(peers):
            measured[peer.name] += peer.ask("steps", count=steps + 1, clock=clock)["seconds"][1:]
    return {name: Times(tuple(seconds)) for name, seconds in measured.items()}


def serve(verbs: Mapping[str, Callable[..., Any]]) -> None:
    """Main loop of a contestant. Its prints go to stderr, because stdout carries the answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = verbs[request.pop("verb")](**request)
        except Exception as error:  # noqa: BLE001 - reported to the benchmark, which decides what to do
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def torch_python(path: str | None) -> str:
    """The interpreter with PyTorch: `path`, or the current one."""
    for python in [path] if path else [sys.executable]:
        if has_torch(python):
            return python
    raise SystemExit(f"{path or sys.executable} has no PyTorch: run pip install -e '.[bench]', or set --torch-python")
