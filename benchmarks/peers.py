"""Contestants as processes of their own, asked over pipes: one works while the others wait.

A contestant is a module with `serve({verb: function})`: a JSON object a line comes in, one goes out. Each lives
through a whole benchmark, so that warm-up is paid once, and they take turns of a few steps each, so that a noisy
neighbour on the machine hits all alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

ROOT = Path(__file__).parents[1]
# glibc gives large buffers back to the kernel as soon as they are freed, and every step faults them in again.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": "67108864",
}


# On a machine that others use as well, the processor time of one thread tells more than the clock on the wall.
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class PeerError(Exception):
    """What a contestant said when it could not go on."""


class Peer:
    """One contestant."""

    def __init__(
        self,
        name: str,
        module: str,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        """`inside`: a command that sets limits and then becomes the rest of its arguments."""
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
        """Waits for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(f"{self.name} has ended ({self._process.wait()})") from None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # what a library prints while it is imported
            sys.stderr.write(line)
            line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self.name} ended with {self._process.wait()} while asked to {verb}")
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
    """Of one contestant, in seconds."""

    all: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.all)

    @property
    def middle(self) -> float:
        return median(self.all)

    def __add__(self, other: Times) -> Times:
        return Times(self.all + other.all)


def take_turns(peers: list[Peer], rounds: int, steps: int, clock: str = "wall") -> dict[str, Times]:
    """`steps` each, in turn, `rounds` times; the first step of a turn refills the caches and does not count."""
    taken: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for turn in range(rounds):
        for peer in peers if turn % 2 == 0 else reversed(peers):
            taken[peer.name] += peer.ask("steps", count=steps + 1, clock=clock)["seconds"][1:]
    return {name: Times(tuple(seconds)) for name, seconds in taken.items()}


def serve(verbs: Mapping[str, Callable[..., Any]]) -> None:
    """A contestant's whole life. What it prints goes to stderr: stdout is for answers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = verbs[request.pop("verb")](**request)
        except Exception as error:  # noqa: BLE001 - the asking side decides what it means
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def torch_python(given: str | None) -> str:
    """The interpreter with PyTorch: the one given, or this one."""
    for python in [given] if given else [sys.executable]:
        if has_torch(python):
            return python
    raise SystemExit(
        f"{given or sys.executable} has no PyTorch: pip install -e '.[bench]', or name another with --torch-python"
    )
