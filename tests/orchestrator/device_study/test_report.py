"""The report as a file: whole, alone, and unmoved by what a phone writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from orchestrator.device_study.published import FIGURES
from orchestrator.device_study.report import svg
from orchestrator.device_study.report.page import page
from tests.orchestrator.device_study.samples import HOSTILE, study

PAGE = page(study())
EMPTY = {"meta", "link", "circle", "rect", "line", "path"}


class Reader(HTMLParser):
    """Fails where a tag is closed that is not the last one opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read() -> Reader:
    reader = Reader()
    reader.feed(PAGE)
    reader.close()
    return reader


def test_tags_are_balanced() -> None:
    assert read().open == []


def test_the_page_loads_nothing_external() -> None:
    assert not re.search(r"https?:|//|@import|url\(|src=", PAGE)
    assert "<script" not in PAGE


def test_phone_output_is_escaped() -> None:
    assert HOSTILE not in PAGE
    assert "\x1b" not in PAGE
    assert '<script>alert("gotcha")</script>' in read().text


@pytest.mark.parametrize(
    "printed",
    [
        "SM-G975F",
        "OpenCL has no device here",
        "Convolutions only",
        "512 wide and 8 deep",
        "predicted to run out of memory: needs 4.13 GB",
        "Where the time of a step goes",
        "Battery power",
        "Training behind an application",
        "Minutes of training",
        "Compared with the papers",
        "59 of 64 cells agree",
        "1867G",
        "A virtual phone",
        "did not finish",
    ],
)
def test_the_report_contains(printed: str) -> None:
    assert printed in read().text


def test_the_report_has_plots() -> None:
    assert read().seen.count("svg") >= 20


def test_axis_ticks_are_round() -> None:
    assert svg.ticks(0.0, 4.1) == [0, 1, 2, 3, 4, 5]
    assert svg.ticks(101.0, 139.0) == pytest.approx([100, 110, 120, 130, 140])
    assert svg.ticks(5.0, 5.0)
    assert svg.decades(0.003, 2.0) == pytest.approx([1e-3, 1e-2, 1e-1, 1, 10])
    assert svg.decades(1.0, 1.0) == [1, 10]


def test_line_labels_do_not_overlap() -> None:
    placed = svg.spread([50.0, 51.0, 10.0, 52.0], 13)
    assert placed[2] < placed[0] < placed[1] < placed[3]
    ordered = sorted(placed)
    assert all(after - before >= 12.999 for before, after in pairwise(ordered))
    assert svg.spread([], 13) == []


def test_empty_plots_are_omitted() -> None:
    assert not svg.lines("none", [svg.Line("64", [])], "layers", str, str, log=True)


def test_names_of_published_figures_fit_their_plot() -> None:
    assert max(len(figure.what) for figure in FIGURES.values()) * svg.CHARACTER <= svg.WIDTH
