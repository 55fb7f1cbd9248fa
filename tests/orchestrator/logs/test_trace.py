"""Traces of all phones on one clock, without invalid spans, and step times that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.logs.trace import RankTrace, Span, break_down_steps, read_trace, to_chrome_trace


def written(path: Path, header: Any, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in (header, *lines)]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_times_are_converted_to_the_clock_of_rank_0(tmp_path: Path) -> None:
    header = {"rank": 1, "phone": "p1-02", "offset_s": 100.0, "offset_error_s": 0.002}
    trace = read_trace(written(tmp_path / "t", header, ["forward", 4, 101.5, 102.0]), "p1-02")
    assert trace == RankTrace(1, "p1-02", 0.002, [Span("forward", 4, 1.5, 2.0)])


def test_invalid_spans_are_skipped(tmp_path: Path) -> None:
    odd: list[Any] = [
        "{", "[]", [1, 2, 3, 4], ["forward", 1, 2.0, 1.0], ["forward", "x", 0, 1], ["eval", 1, 0, 1],
        ["forward", 1, 0, 1e999], [["forward"], 1, 0, 1], '["forward", 1, 0, NaN]', ["wait", 1, 0.0, 1.0],
    ]  # fmt: skip
    assert read_trace(written(tmp_path / "t", {"rank": 0}, *odd), "p").spans == [Span("wait", 1, 0.0, 1.0)]


@pytest.mark.parametrize("header", ["", "[]", {"phone": "p"}, {"rank": "0"}])
def test_a_timeline_without_its_rank_is_rejected(tmp_path: Path, header: Any) -> None:
    with pytest.raises(PhoneError, match="invalid first line"):
        read_trace(written(tmp_path / "t", header), "p")


def test_a_chrome_trace_starts_at_zero_and_names_ranks_and_threads() -> None:
    spans = [Span("forward", 1, 5.0, 5.5), Span("reduce", 1, 5.25, 5.75), Span("receive", 1, 5.3, 5.4)]
    events = to_chrome_trace([RankTrace(3, "p1-04", 0.0, spans)])["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"rank 3: p1-04", "compute", "communication", "line"}
    drawn = [(event["name"], event["tid"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
    assert drawn == [("forward", 0, 0.0, 5e5), ("reduce", 1, 2.5e5, 5e5), ("receive", 2, 3e5, 1e5)]


def test_waiting_is_exposed_and_the_warm_up_is_excluded() -> None:
    spans = [Span("wait", 1, 0.0, 100.0)]
    for step in (4, 5):
        at = 10.0 * step
        spans += [
            Span("forward", step, at, at + 3),
            Span("wait", step, at + 3, at + 4),
            Span("backward", step, at + 4, at + 8),
            Span("reduce", step, at + 5, at + 9),
        ]
    found = break_down_steps(RankTrace(0, "p", 0.0, spans))
    assert found is not None
    assert (found.steps, found.step_s, found.compute_s, found.communication_s) == (2, 8.0, 7.0, 4.0)
    assert found.exposed == 1 / 8
    assert break_down_steps(RankTrace(0, "p", 0.0)) is None
