"""`make bench` covers every benchmark."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT_SHORT_FORM = {"accuracy", "accuracy_plot", "cifar"}  # takes hours; draws its plots; prepares its data


def test_each_benchmark_has_a_short_form() -> None:
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "ArgumentParser(" in path.read_text()}
    assert "compute" in programs
    short = re.findall(r"^SHORT_(\w+) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {name for name, _ in short} == programs - WITHOUT_SHORT_FORM
    for name, flags in short:
        accepted = set(re.findall(r'"(--[\w-]+)"', (ROOT / "benchmarks" / f"{name}.py").read_text()))
        assert set(re.findall(r"--[\w-]+", flags)) <= accepted, name
