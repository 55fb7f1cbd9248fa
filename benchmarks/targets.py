"""Performance and accuracy targets of a benchmark: one printed line per target, and the exit code."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TextIO

SIGNS: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, ">": operator.gt, "<=": operator.le}


@dataclass(frozen=True)
class Target:
    """A bound on a measured value. A missing measurement (None) misses the target; a `skip_reason` excludes it."""

    name: str
    value: float | None
    sign: str
    bound: float
    skip_reason: str = ""

    @property
    def checked(self) -> bool:
        return not self.skip_reason

    @property
    def met(self) -> bool:
        return self.value is not None and SIGNS[self.sign](self.value, self.bound)

    def __str__(self) -> str:
        measured = "not run" if self.value is None else f"{self.value:.4g}"
        verdict = f"not checked, {self.skip_reason}" if self.skip_reason else "met" if self.met else "MISSED"
        return f"{self.name}: {measured} ({self.sign} {self.bound:g}): {verdict}"


def report_targets(targets: Iterable[Target], to: TextIO | None = None) -> None:
    """Print every target. Exit with 1 if a checked target is missed, or if no target was checked."""
    targets = list(targets)
    for target in targets:
        print(target, file=to)
    checked = [target for target in targets if target.checked]
    if not checked:
        print("no target was checked", file=to)
    if not checked or not all(target.met for target in checked):
        sys.exit(1)
