"""Tables that fit the screen: less important columns are dropped, names are never cut.

A pipe or file has no width, so tables there are rendered 120 columns wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

PIPE_WIDTH, PIPE_HEIGHT = 120, 1000
_GAP = 2  # columns between two cells
_NARROWEST_PROSE = 24  # a wrapped column below this width is hard to read


@dataclass(frozen=True)
class Column:
    """`priority` 0 is always shown; of the others, the highest number is dropped first."""

    title: str
    priority: int = 0
    right: bool = False  # numbers are right-aligned
    wrap: bool = False  # prose that may use several lines; everything else stays on one
    cut: bool = False  # prose that is shortened to one line; at most one column
    style: str = ""


class FitTable:
    """A table that drops its least important columns until it fits."""

    def __init__(self, *columns: Column | str, title: str | Text = "", caption: str = "") -> None:
        self.columns = [Column(column) if isinstance(column, str) else column for column in columns]
        self.title = title
        self.caption = caption
        self._rows: list[tuple[Text, ...]] = []

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add_row(self, *cells: str | Text) -> None:
        """Plain strings are never parsed as markup: they may come from a phone. Missing cells are empty."""
        missing = [""] * (len(self.columns) - len(cells))
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in (*cells, *missing)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, "bold") if isinstance(self.title, str) else self.title
        yield self._table(self._fitting(options.max_width), options.max_width)
        if self.caption:
            yield Text(self.caption, "dim")

    def _fitting(self, width: int) -> list[int]:
        """Indices of the columns to show."""
        shown = list(range(len(self.columns)))
        while self._least_width(shown) > width:
            droppable = [index for index in shown if self.columns[index].priority]
            if not droppable:
                break
            shown.remove(max(droppable, key=lambda index: (self.columns[index].priority, index)))
        return shown

    def _least_width(self, shown: Sequence[int]) -> int:
        return sum(map(self._least_column_width, shown)) + _GAP * (len(shown) - 1)

    def _least_column_width(self, index: int) -> int:
        title = len(self.columns[index].title)
        widest = max([title, *(row[index].cell_len for row in self._rows)])
        prose = self.columns[index].wrap or self.columns[index].cut
        return min(widest, max(title, _NARROWEST_PROSE)) if prose else widest

    def _table(self, shown: Sequence[int], width: int) -> Table:
        header = any(self.columns[index].title for index in shown)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", show_header=header)
        spare = width - self._least_width(shown)
        for index in shown:
            column = self.columns[index]
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                style=column.style,
                no_wrap=spare >= 0 and not column.wrap,
                overflow="ellipsis" if column.cut else "fold",
                max_width=max(1, self._least_column_width(index) + spare) if column.cut else None,
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in shown))
        return table


def print_table(console: Console, table: RenderableType) -> None:
    for_tables(console).print(table)


def for_tables(console: Console) -> Console:
    """The console itself if it is a terminal; else one that is wide and high enough for every table."""
    if console.is_terminal:
        return console
    return Console(file=console.file, width=PIPE_WIDTH, height=PIPE_HEIGHT, highlight=False)


def fact_table(rows: Sequence[tuple[str, str]]) -> FitTable:
    """Names and values, without a header."""
    table = FitTable(Column("", style="dim"), Column("", wrap=True))
    for name, value in rows:
        table.add_row(name, value)
    return table
