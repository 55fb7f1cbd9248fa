"""What was promised and what came out: a line each, and the exit code."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TextIO

SIGNS: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, ">": operator.gt, "<=": operator.le}


@dataclass(frozen=True)
class Promise:
    """`value` is what came out, None where nothing did: then it is not kept. With an `excuse` it is not judged."""

    what: str
    value: float | None
    sign: str
    bound: float
    excuse: str = ""

    @property
    def judged(self) -> bool:
        return not self.excuse

    @property
    def kept(self) -> bool:
        return self.value is not None and SIGNS[self.sign](self.value, self.bound)

    def __str__(self) -> str:
        came = "not run" if self.value is None else f"{self.value:.4g}"
        verdict = f"not judged, {self.excuse}" if self.excuse else "kept" if self.kept else "NOT KEPT"
        return f"{self.what}: {came} ({self.sign} {self.bound:g}): {verdict}"


def conclude(promises: Iterable[Promise], to: TextIO | None = None) -> None:
    """Prints the verdicts. Ends with 1 where one is not kept, and where none was judged: that shows nothing."""
    told = list(promises)
    for promise in told:
        print(promise, file=to)
    judged = [promise for promise in told if promise.judged]
    if not judged:
        print("nothing was judged", file=to)
    if not judged or not all(promise.kept for promise in judged):
        sys.exit(1)
