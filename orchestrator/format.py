"""Numbers as people read them: one set of rules for the terminal, the HTML report and messages."""

from __future__ import annotations

from collections.abc import Iterable

NOT_AVAILABLE = "not available"


def format_clock(seconds: float) -> str:
    """Elapsed or remaining time as on a stopwatch: 2:05, 1:02:05."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def format_seconds(value: float | None) -> str:
    """A measured time with three digits: 1.50 ms, 12.3 s."""
    if value is None:
        return ""
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{_three_digits(value * 1e3)} ms" if value < 1 else f"{_three_digits(value)} s"


def format_tick(seconds: float) -> str:
    """A time as the label of an axis tick: 10 ms, 2.5 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9999 * size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0"


def format_count(value: float) -> str:
    """1792 as 1.79 K, 16532992 as 16.5 M."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{_three_digits(value / size)} {suffix}"
    return f"{value:.0f}"


def format_bytes(value: float | None) -> str:
    """Decimal units, as on a data sheet: 1.23 GB, 98 MB."""
    if value is None:
        return ""
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def format_percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.0f}%"


def format_quantity(value: float, unit: str) -> str:
    """2.2x, 91%, 14.8%."""
    figure = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{figure}%" if unit == "%" else f"{figure}{unit}"


def format_shape(shape: Iterable[int]) -> str:
    """224x224x3."""
    return "x".join(map(str, shape))


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
