"""Numbers as people read them, for the terminal and for the report."""

from __future__ import annotations

NOT_TO_BE_HAD = "not to be had"


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{_three(value * 1e3)} ms" if value < 1 else f"{_three(value)} s"


def duration(value: float) -> str:
    """A mark on an axis: 10 ms, 2.5 s."""
    for unit, size_of in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= 0.9999 * size_of:
            return f"{value / size_of:.4g} {unit}"
    return f"{value * 1e9:.3g} ns" if value else "0"


def count(value: float) -> str:
    """1 792 as 1.79 K; 16 532 992 as 16.5 M."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{_three(value / size)} {suffix}"
    return f"{value:.0f}"


def size(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def quantity(value: float, unit: str) -> str:
    """2.2x, 91 %, 14.8 %."""
    figure = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{figure} %" if unit == "%" else f"{figure}{unit}"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
