"""Functions that produce HTML. All text is escaped here, because it may come from a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from orchestrator.text import one_line


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


@dataclass(frozen=True)
class Cell:
    content: str | Html
    css: str = ""
    span: int = 1  # columns


def plain(text: object) -> Html:
    return text if isinstance(text, Html) else Html(escape(one_line(str(text), 600)))


def element(name: str, *content: object, css: str = "") -> Html:
    attribute = f' class="{css}"' if css else ""
    return Html(f"<{name}{attribute}>{''.join(map(plain, content))}</{name}>")


def join(parts: Iterable[str]) -> Html:
    return Html("".join(map(plain, parts)))


def paragraph(*content: object, css: str = "") -> Html:
    return element("p", *content, css=css)


def table(headings: Sequence[str | Html | Cell], rows: Iterable[Sequence[str | Html | Cell]]) -> Html:
    """The first cell of a row names it."""
    head = element("thead", element("tr", *(_cell("th", heading) for heading in headings)))
    body = [element("tr", *(_cell("td" if place else "th", cell) for place, cell in enumerate(row))) for row in rows]
    return element("div", element("table", head, element("tbody", *body)), css="scroll")


def figure(caption: str, small: str, *drawing: str) -> Html:
    heading = element("figcaption", caption, element("small", small) if small else "")
    return element("figure", heading, *map(Html, drawing))


def charts(*figures: Html) -> Html:
    return element("div", *figures, css="charts")


def legend(entries: Iterable[tuple[str, str]]) -> Html:
    """Names and colors."""
    swatches = (Html(f'<span><i style="background:var({color})"></i>{plain(name)}</span>') for name, color in entries)
    return element("div", *swatches, css="legend")


def tag(kind: str) -> Html:
    """measured, published or modeled: where a number comes from."""
    return element("span", kind, css=f"tag {kind}")


def details(summary: str, *content: object) -> Html:
    return element("details", element("summary", summary), *content)


def _cell(name: str, cell: str | Html | Cell) -> Html:
    if not isinstance(cell, Cell):
        return element(name, cell)
    attributes = f' class="{cell.css}"' if cell.css else ""
    attributes += f' colspan="{cell.span}"' if cell.span > 1 else ""
    return Html(f"<{name}{attributes}>{plain(cell.content)}</{name}>")
