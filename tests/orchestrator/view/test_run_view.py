"""A run on a terminal, in a log file, and its summary."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from orchestrator.records.activity import Activity
from orchestrator.records.events import Event, Progress, parse_event
from orchestrator.records.run_status import RunStatus
from orchestrator.view.run_format import format_step, sparkline
from orchestrator.view.run_live import LiveRunView, render_run
from orchestrator.view.run_plain import PlainRunView
from orchestrator.view.run_summary import print_summary, summary_json
from tests.orchestrator.launch.samples import event, spec
from tests.orchestrator.view.screens import drawn, screen


@pytest.mark.parametrize(
    ("values", "curve"),
    [([], ""), ([1.0], "▁"), ([1.0, 1.0], "▁▁"), ([2.0, 0.0], "█▁"), ([float(n) for n in range(16)], "▁▂▃▄▅▆▇█")],
)
def test_sparkline_scales_from_minimum_to_maximum(values: list[float], curve: str) -> None:
    assert sparkline(values, width=8) == curve


def progress_after(*events: bytes) -> Progress:
    progress = Progress(20)
    for line in events:
        progress.update(parsed_event(line))
    return progress


def parsed_event(line: bytes) -> Event:
    parsed = parse_event(line)
    assert parsed is not None
    return parsed


def status(**changes: Any) -> RunStatus:
    """Four phones train."""
    found = RunStatus("run", "running", 5, 20, 4, 4, last_step_age_s=1.0, silent=False, eta_s=7.0)
    return replace(found, **changes)


WAITING = status(
    state="interrupted",
    computing=0,
    last_step_age_s=94.0,
    silent=True,
    eta_s=None,
    waiting_for="1 phone: 3 of 4 can take part, at least 4 needed (--min-phones)",
    next_command="clusterctl attach run --min-phones 3",
)


STEP = event(
    "step",
    12.0,
    step=5,
    loss=1.25,
    images_per_s=640.0,
    step_s=0.5,
    compute_s=0.4,
    comm_s=0.1,
    hottest={"phone": "p1-03", "temperature_c": 44.0},
)


def test_live_view_shows_progress_loss_speed_and_temperature() -> None:
    console = screen()
    console.print(render_run(spec(), progress_after(event("start", 10.0), STEP), status(last_step_age_s=3.0)))
    text = "\n".join(drawn(console))
    for part in ("5/20", "25%", "1.2500", "640 images/s", "compute 80%", "communication 20%", "p1-03 (sw1:3)", "44 °C"):
        assert part in text
    assert "0:05 elapsed" in text


def test_live_view_counts_down_only_while_steps_arrive() -> None:
    def shown(now: RunStatus) -> str:
        console = screen()
        console.print(render_run(spec(), progress_after(event("start", 10.0), STEP), now))
        return "\n".join(drawn(console))

    training = shown(status())
    assert "0:03 elapsed, 0:07 left" in training
    assert "compute\n" not in training
    assert "3 of 4 compute" in shown(status(computing=3))
    silent = shown(status(silent=True, eta_s=None, last_step_age_s=34.0))
    assert "no news from the head phone; last step 0:34 ago" in silent
    assert " left" not in silent
    waiting = shown(WAITING)
    for part in (
        "none of 4 compute",
        "  last step 1:34 ago",
        "waiting for  1 phone: 3 of 4 can take part, at least 4 needed (--min-phones)",
        "clusterctl attach run --min-phones 3",
    ):
        assert part in waiting
    assert " left" not in waiting


def test_plain_view_says_once_what_the_run_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=120)
    monkeypatch.setattr("orchestrator.view.run_plain.err", console)
    monkeypatch.setattr("orchestrator.view.console.err", console)
    with PlainRunView() as view:
        for now in (status(silent=True, last_step_age_s=34.0), WAITING, WAITING):
            view.refresh(spec(), Progress(20), Activity(), now)
    assert drawn(console) == [
        "no news from the head phone; last step 0:34 ago",
        "waiting for 1 phone: 3 of 4 can take part, at least 4 needed (--min-phones)",
        "next: clusterctl attach run --min-phones 3",
    ]


def test_evaluation_results_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = event("evaluate", 13.0, step=5, top1=0.5, top5=0.875, loss=1.0, samples=40)
    console = screen()
    console.print(render_run(spec(), progress_after(STEP, found)))
    assert "test accuracy 50.0% (top 5: 87.5%) at step 5" in "\n".join(drawn(console))
    log = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", log)
    with PlainRunView() as view:
        view.update(progress_after(STEP, found), parsed_event(found))
    assert drawn(log) == ["step 5/20  test accuracy 50.0% (top 5: 87.5%)"]


@pytest.mark.parametrize(
    ("reached", "line"),
    [
        (0.5, "allreduce: ring, int8, 50% of measured link speed; 2.0% of step time spent waiting"),
        (1.5, "allreduce: ring, int8, 150% of measured link speed; 2.0% of step time spent waiting"),
        (None, "allreduce: ring, int8; 2.0% of step time spent waiting"),  # local steps
    ],
)
def test_summary_reports_allreduce_efficiency(
    monkeypatch: pytest.MonkeyPatch, reached: float | None, line: str
) -> None:
    chosen = event("comm_plan", 10.0, algorithm="ring", wire="int8", bucket_bytes=4, predicted_s=0.5, limit_s=0.25)
    done = event("done", 13.0, steps=20, line_rate_fraction=reached, exposed_comm_fraction=0.02)
    shown = Console(file=io.StringIO(), width=120)
    monkeypatch.setattr("orchestrator.view.run_summary.out", shown)
    print_summary(spec(), progress_after(event("start", 10.0), chosen, STEP, done), None)
    assert f"  {line}" in drawn(shown)


def test_a_batch_size_change_is_one_line_with_phone_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "p1-02 (sw1:2) 32 -> 16 images per step: 3.0 times slower per image than the others"
    share = event("rebalance", 13.0, step=7, batches=[48, 16], reason=why)
    pause, resume = (event(kind, 14.0, reason=f"p1-01 {kind}s") for kind in ("pause", "resume"))
    console = screen()
    console.print(render_run(spec(), progress_after(STEP, share, pause)))
    text = "\n".join(drawn(console))
    assert "from step 7: p1-02 (sw1:2) 32 -> 16 images per step" in text
    assert "p1-01 pauses" in text
    log = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", log)
    with PlainRunView() as view:
        for line in (share, pause, resume):
            view.update(progress_after(share), parsed_event(line))
    assert drawn(log) == [f"from step 7: {why}", "p1-01 pauses", "p1-01 resumes"]
    assert summary_json(spec(), progress_after(share), None)["batch_changes"] == [
        {"step": 7, "batches": (48, 16), "reason": why}
    ]


def test_live_view_draws_before_the_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    console = screen()
    monkeypatch.setattr("orchestrator.view.run_live.err", console)
    with LiveRunView(None) as view:
        view.phase("checking", 2, 4)
    with LiveRunView(spec()) as view:
        view.update(progress_after(STEP), parsed_event(STEP))
        view.refresh(spec(), progress_after(STEP), Activity(problem="no route; retrying"), status())
    text = "\n".join(drawn(console))
    assert "no route; retrying" in text
    assert "checking 4 phones: 2 of 4" in text
    assert "5/20" in text


def test_plain_view_prints_lines_without_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", console)
    warning = event("warning", 11.0, message="\x1b[31mhot")
    with PlainRunView() as view:
        view.phase("checking", 4, 4)
        progress = progress_after(warning, STEP)
        view.update(progress, parsed_event(warning))
        view.update(progress, parsed_event(STEP))
    lines = drawn(console)
    assert lines[0] == "checking 4 phones: done"
    assert lines[1] == "warning: p1-01: \\x1b[31mhot"
    assert lines[2].startswith("step 5/20  loss 1.2500  640 images/s")


def test_plain_view_prints_what_the_supervisor_does_once(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", console)
    with PlainRunView() as view:
        for phases in ({"staging on": (1, 4)}, {"staging on": (4, 4)}, {"staging on": (4, 4), "starting on": (0, 4)}):
            view.refresh(spec(), Progress(20), Activity(phases), status())
        for _ in range(2):
            view.refresh(spec(), Progress(20), Activity(problem="no route\x1b[2J"), status())
    assert drawn(console) == ["staging on 4 phones: done", "no route\\x1b[2J"]


def test_a_step_without_readings_is_still_a_line() -> None:
    assert format_step(progress_after(event("step", 1.0, step=1))) == "step 1/20"
