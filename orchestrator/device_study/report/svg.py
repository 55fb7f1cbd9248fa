"""Plots as SVG text, 360 pixels wide: on a phone, their text is as large as that of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from orchestrator.device_study.report.style import SERIES

WIDTH = 360
CHARACTER = 7.1  # of the 12-pixel font, about
_SHAPES = {"--c2": 3, "--c3": 0}  # of dots, which must differ without color

Format = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """Points in order of x. `missing`: the x of points that could not be measured, shown at the top."""

    name: str
    points: Sequence[tuple[float, float]]
    missing: Sequence[float] = ()


@dataclass(frozen=True)
class Bar:
    label: str
    value: float | None
    color: str
    text: str  # beside the bar


@dataclass(frozen=True)
class Group:
    label: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Stack:
    label: str
    parts: Sequence[tuple[str, float]]  # color and size


@dataclass(frozen=True)
class Dots:
    """One line of a dot plot: color, value and label of each dot."""

    label: str
    dots: Sequence[tuple[str, float, str]]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    span = (high - low) or abs(high) or 1.0
    raw = span / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def spread(wanted: Sequence[float], apart: float) -> list[float]:
    """Positions close to the wanted ones, but at least `apart` from each other; in the order given."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = list(wanted)
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + apart)
    over = sum(placed) - sum(wanted)
    return [place - over / len(wanted) for place in placed] if placed else []


def lines(
    title: str,
    series: Sequence[Line],
    x_label: str,
    y_format: Format,
    x_format: Format,
    *,
    log: bool,
    height: int = 236,
) -> str:
    """`log`: both axes, x by doubling. Each line has its name at its end, and its own marks."""
    left, right, top, bottom = 56, 42, 16, 40
    xs = sorted({x for line in series for x in (*(point[0] for point in line.points), *line.missing)})
    ys = [y for line in series for _, y in line.points]
    if not xs or not ys:
        return ""
    marks = decades(min(ys), max(ys)) if log else ticks(min(ys), max(ys))
    place_x = _scale(xs[0], xs[-1], left, WIDTH - right, log=log)
    place_y = _scale(marks[0], marks[-1], height - bottom, top, log=log)
    parts = [
        *(_horizontal(left, WIDTH - right, place_y(y), y_format(y)) for y in marks),
        *(_text(place_x(x), height - bottom + 16, x_format(x), "soft middle") for x in (xs if log else _x_ticks(xs))),
        _text((left + WIDTH - right) / 2, height - 6, x_label, "soft middle"),
        f'<line class="axis" x1="{left}" x2="{WIDTH - right}" y1="{height - bottom}" y2="{height - bottom}"/>',
    ]
    ends = []
    for number, line in enumerate(series):
        color = SERIES[number % len(SERIES)]
        placed = [(place_x(x), place_y(y)) for x, y in line.points]
        parts.append(_path(placed, color))
        if len(placed) <= 12:
            parts += [_mark(number, x, y, color) for x, y in placed]
        parts += [_cross(place_x(x), top + 2 + 5 * number, color) for x in line.missing]
        if placed:
            ends.append((line.name, placed[-1], color))
    heights = spread([end[1][1] for end in ends], 13)
    for (name, (x, _), color), y in zip(ends, heights, strict=True):
        parts.append(_text(x + 8, y + 4, name, "strong", color))
    return _svg(title, height, parts)


def bars(title: str, groups: Sequence[Group]) -> str:
    """Horizontal bars, which leave room for names. All have one scale, which starts at zero."""
    shown = [bar for group in groups for bar in group.bars]
    most = max((bar.value for bar in shown if bar.value is not None), default=0.0) or 1.0
    left = 12 + CHARACTER * max((len(bar.label) for bar in shown), default=0)
    room = WIDTH - left - 8 - CHARACTER * max((len(bar.text) for bar in shown if bar.value is not None), default=0)
    parts, y = [], 4.0
    for group in groups:
        if group.label:
            parts.append(_text(0, y + 11, group.label, "strong"))
            y += 18
        for bar in group.bars:
            parts.append(_text(left - 6, y + 11.5, bar.label, "soft end"))
            length = 0.0 if bar.value is None else max(1.5, room * bar.value / most)
            parts.append(_rect(left, y + 1, length, 14, bar.color))
            parts.append(_text(left + length + 5, y + 12, bar.text, "soft" if bar.value is None else ""))
            y += 19
        y += 8
    return _svg(title, round(y), parts)


def stacks(title: str, rows: Sequence[Stack]) -> str:
    """Each row fills the width with the fractions of its total; those with enough room are labeled."""
    left, parts, y = 0.0, [], 2.0
    for row in rows:
        whole = sum(size for _, size in row.parts) or 1.0
        parts.append(_text(left, y + 11, row.label, "strong"))
        x = left
        for color, size in row.parts:
            wide = size / whole * WIDTH
            parts.append(_rect(x, y + 17, wide - 1, 20, color))
            share = f"{100 * size / whole:.0f}%"
            if wide > CHARACTER * len(share) + 4:
                parts.append(_text(x + wide / 2, y + 31, share, "middle strong", f"--on{color[1:]}"))
            x += wide
        y += 46
    return _svg(title, round(y), parts)


def dots(title: str, rows: Sequence[Dots], *, log: bool) -> str:
    """A line for each row, with its name above. The right one of two dots has its label on the right."""
    values = [value for row in rows for _, value, _ in row.dots]
    least = min(values)
    low, high = (least * 0.8, max(values) * 1.25) if log else (min(0.0, least), max(values))
    edge = 12 + CHARACTER * max(len(word) for row in rows for _, _, word in row.dots)
    place = _scale(low, high, edge, WIDTH - edge, log=log)
    parts, y = [], 2.0
    for row in rows:
        left, *_, right = sorted(row.dots, key=lambda dot: dot[1])
        start, end = place(left[1]), place(right[1])
        parts += [
            _text(0, y + 11, row.label, "soft"),
            f'<line class="grid" x1="{edge:.1f}" x2="{WIDTH - edge:.1f}" y1="{y + 23:.1f}" y2="{y + 23:.1f}"/>',
            f'<line class="axis" x1="{start:.1f}" x2="{end:.1f}" y1="{y + 23:.1f}" y2="{y + 23:.1f}"/>',
            _mark(_SHAPES.get(left[0], 0), start, y + 23, left[0]),
            _mark(_SHAPES.get(right[0], 0), end, y + 23, right[0]),
            _text(start - 8, y + 27, left[2], "end strong", left[0]),
            _text(end + 8, y + 27, right[2], "strong", right[0]),
        ]
        y += 40
    return _svg(title, round(y), parts)


def _scale(low: float, high: float, start: float, end: float, *, log: bool) -> Callable[[float], float]:
    change: Callable[[float], float] = math.log if log else float
    first, last = change(low), change(high)
    if first == last:
        return lambda _: (start + end) / 2
    return lambda value: start + (change(value) - first) / (last - first) * (end - start)


def _x_ticks(xs: Sequence[float]) -> list[float]:
    return [tick for tick in ticks(xs[0], xs[-1]) if xs[0] - 1e-9 <= tick <= xs[-1] + 1e-9]


def _svg(title: str, height: int, parts: Iterable[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{body}</svg>'


def _text(x: float, y: float, text: str, css: str = "", color: str = "") -> str:
    style = f' style="fill:var({color})"' if color else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}"{style}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, color: str) -> str:
    size = f'width="{max(0.0, width):.1f}" height="{height:g}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="2.5" fill="var({color})"/>'


def _horizontal(left: float, right: float, y: float, text: str) -> str:
    grid = f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return grid + _text(left - 6, y + 4, text, "soft end")


def _path(points: Sequence[tuple[float, float]], color: str) -> str:
    drawn = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
    return f'<path class="path" d="{drawn}" style="stroke:var({color})"/>' if points else ""


def _mark(number: int, x: float, y: float, color: str) -> str:
    """A shape for each line, so that lines differ without color."""
    fill = f'fill="var({color})"'
    match number % 4:
        case 0:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" {fill}/>'
        case 1:
            return f'<rect x="{x - 3.3:.1f}" y="{y - 3.3:.1f}" width="6.6" height="6.6" {fill}/>'
        case 2:
            return f'<path d="M{x:.1f} {y - 4.4:.1f}l4.4 7.6h-8.8z" {fill}/>'
    return f'<path d="M{x:.1f} {y - 4.8:.1f}l4.8 4.8l-4.8 4.8l-4.8 -4.8z" {fill}/>'


def _cross(x: float, y: float, color: str) -> str:
    return f'<path class="path" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" style="stroke:var({color})"/>'
