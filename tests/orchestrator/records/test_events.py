from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records.events import Hottest, IncidentEvent, Progress, StartEvent, StepEvent, parse_event
from tests.orchestrator.launch.samples import event


def progress(*lines: bytes, steps: int = 10) -> Progress:
    state = Progress(steps)
    for line in lines:
        parsed = parse_event(line)
        assert parsed is not None
        state.update(parsed)
    return state


def step(number: int, time: float, **fields: Any) -> bytes:
    return event("step", time, step=number, loss=2.3 / number, **fields)


def test_progress_follows_the_events_of_a_run() -> None:
    state = progress(
        event("start", 100.0, world=4),
        step(1, 101.0, step_s=4.5),
        step(
            5,
            105.0,
            images_per_s=640.0,
            step_s=0.5,
            compute_s=0.4,
            comm_s=0.1,
            hottest={"phone": "p1-03", "temperature_c": 44},
        ),
    )
    assert (state.state, state.step, state.images_per_s) == ("running", 5, 640.0)
    assert state.compute_fraction == pytest.approx(0.8)
    assert state.comm_fraction == pytest.approx(0.2)
    assert state.hottest == Hottest(phone="p1-03", temperature_c=44.0)
    assert state.losses == pytest.approx([2.3, 0.46])
    assert state.elapsed_s == pytest.approx(5.0)
    assert state.eta_s == pytest.approx(2.5 * 5)


@pytest.mark.parametrize(
    ("reported", "state"), [("done", "done"), ("stopped", "stopped"), ("failed", "failed"), ("odd", "failed")]
)
def test_the_end_event_decides_the_state(reported: str, state: str) -> None:
    assert progress(event("start", 1.0), event("end", 2.0, state=reported, rc=0)).state == state


def test_the_first_error_is_kept() -> None:
    state = progress(event("error", 1.0, message="disk full"), event("error", 2.0, message="peer lost"))
    assert state.error is not None
    assert state.error.message == "disk full"


def test_batch_changes_and_pauses_are_recorded() -> None:
    state = progress(
        event("rebalance", 1.0, step=7, batches=[48, 16], reason="p1-02 (sw1:2) 32 -> 16 images a step: slow"),
        event("pause", 2.0, reason="p1-01 (sw1:1) rests: battery at 45 °C"),
    )
    assert [(change.step, change.batches) for change in state.batch_changes] == [(7, (48, 16))]
    assert state.resting == {"p1-01": "p1-01 (sw1:1) rests: battery at 45 °C"}
    assert progress(event("pause", 2.0, reason="hot"), event("resume", 3.0, reason="cool")).resting == {}


def test_a_warning_does_not_name_its_phone_twice() -> None:
    assert progress(event("warning", 1.0, message="p1-01 (sw1:1): hot", names_phone=True)).warnings == [
        "p1-01 (sw1:1): hot"
    ]


def test_progress_goes_back_with_the_run() -> None:
    """All phones lost power at step 3; the last checkpoint has step 1."""
    state = progress(*(event("step", float(step), step=step, step_s=2.0) for step in (1, 2, 3)))
    state.update(StartEvent(time=9.0, resumed=1))
    assert state.step == 1
    assert state.eta_s == pytest.approx(2.0 * 9)
    state.update(StepEvent(time=10.0, step=2, step_s=2.0))
    assert state.step == 2


def test_progress_continues_across_attempts() -> None:
    state = progress(
        event("start", 1.0),
        event("step", 2.0, step=1, step_s=1.0, loss=2.0),
        event("rebalance", 2.0, batches=[9, 8, 8, 7]),
        event("error", 3.0, message="x"),
        event("end", 3.0, state="failed"),
    )
    assert (state.state, state.batches) == ("failed", (9, 8, 8, 7))
    state.update(IncidentEvent(time=4.0, message="p2-01 (sw2:1): gone"))
    state.update(StartEvent(time=5.0, resumed=1))
    assert (state.state, state.error, state.batches) == ("running", None, ())
    assert (state.step, state.incidents) == (1, ["p2-01 (sw2:1): gone"])


def test_the_loss_curve_of_a_long_run_is_bounded() -> None:
    state = progress(*(step(number, float(number)) for number in range(1, 6000)), steps=6000)
    assert len(state.losses) <= 4096
    assert state.losses[0] == pytest.approx(2.3)


@given(st.binary(max_size=200))
def test_any_line_is_accepted(line: bytes) -> None:
    parsed = parse_event(line)
    if parsed is not None:
        Progress(1).update(parsed)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["start", "step", "warning", "rebalance", "pause", "resume", "error", "done", "end"]),
    st.dictionaries(
        st.sampled_from(
            [
                *("step", "loss", "images_per_s", "step_s", "compute_s", "comm_s", "hottest", "state", "message"),
                *("time", "batches", "why", "phone"),
            ]
        ),
        json_values,
    ),
)
def test_any_fields_are_accepted(kind: str, fields: dict[str, Any]) -> None:
    import json

    state = Progress(3)
    if parsed := parse_event(json.dumps({"event": kind, **fields})):
        state.update(parsed)
    assert state.eta_s is None or state.eta_s >= 0
