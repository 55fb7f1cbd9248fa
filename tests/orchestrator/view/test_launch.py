"""What a person sees: rendered to text at the size the screen is promised to fit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.health.health import PhoneHealth, judge
from orchestrator.health.vitals import Vitals, parse_vitals
from orchestrator.inventory.model import Phone
from orchestrator.records.events import Event, Progress, parse_event
from orchestrator.view.launch_plan import print_plan
from orchestrator.view.run_format import format_step, sparkline
from orchestrator.view.run_live import LiveRunView, render_run
from orchestrator.view.run_plain import PlainRunView
from orchestrator.view.run_summary import print_summary, summary_json
from orchestrator.view.status import render_status
from phone_agent.contract.schema import CommunicationSpec
from tests.orchestrator.launch.samples import event, phones, spec, telemetry


def screen(width: int = 120, height: int = 45) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)


def drawn(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def rack(count: int, switches: int, off: Sequence[int] = (), hot: Sequence[int] = ()) -> tuple[PhoneHealth, ...]:
    return judge(
        Outcomes(tuple(outcome(phone, index, off, hot) for index, phone in enumerate(phones(count, switches))))
    )


def outcome(phone: Phone, index: int, off: Sequence[int], hot: Sequence[int]) -> Outcome[Vitals]:
    if index in off:
        return Outcome(phone, Status.UNREACHABLE, 5.0, phase=Phase.TCP, error="no answer within 5 s")
    text = telemetry(temperature_c=88.0 if index in hot else 41.0, run={"id": "run-1", "state": "running", "step": 9})
    return Outcome(phone, Status.OK, 0.1, parse_vitals(text, "", (1000.0, 1000.0)))


def status(health: Sequence[PhoneHealth], width: int = 120, height: int = 45) -> list[str]:
    console = screen(width, height)
    console.print(render_status("s10plus-138", health, (width, height)))
    return drawn(console)


def test_138_phones_fit_one_screen_with_the_troubled_ones_named() -> None:
    lines = status(rack(138, 3, off=(2, 60), hot=(100,)))
    assert len(lines) <= 44  # one is left for the prompt
    assert max(map(len, lines)) <= 120
    text = "\n".join(lines)
    assert "138 phones   ● 135 running  ▲ 1 hot  · 2 off" in lines[0]
    assert "run-1  step 9 on 136 phones" in text
    assert "sw1:3,sw2:15 (2 phones)" in text
    assert "p3-09 (sw3:9)" in text
    assert "88 °C (stop at 80)" in text
    assert text.count("●41°") == 135


def test_a_rack_without_power_is_one_line_not_46() -> None:
    lines = status(rack(138, 3, off=range(46)))
    assert len(lines) <= 44
    assert any("sw1:1-46 (46 phones)" in line for line in lines)


def test_a_short_screen_cuts_the_list_and_says_so() -> None:
    odd = judge(
        Outcomes(
            tuple(
                Outcome[Vitals](phone, Status.FAILED, 1.0, phase=Phase.AUTH, error=f"trouble {index}")
                for index, phone in enumerate(phones(138, 3))
            )
        )
    )
    lines = status(odd, height=45)
    assert len(lines) <= 44
    assert any("more; full list: clusterctl status --json" in line for line in lines)


def test_few_phones_get_every_figure() -> None:
    text = "\n".join(status(rack(4, 2, off=(3,))))
    assert "2400/2841" in text
    assert "81 %+" in text
    assert "58.6 GB" in text
    assert "p2-02 (sw2:2)" in text


def test_a_phone_cannot_style_the_screen() -> None:
    text = telemetry(agent={"version": "[bold]x[/]", "release": "r"})
    answered = Outcome(phones(1)[0], Status.OK, 0.1, parse_vitals(text, "", (1000.0, 1000.0)))
    assert any("[bold]x[/]" in line for line in status(judge(Outcomes((answered,)))))


def test_a_narrow_terminal_gets_fewer_figures_whole() -> None:
    lines = status(rack(4, 2), width=80)
    assert "…" not in "\n".join(lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("values", "curve"),
    [([], ""), ([1.0], "▁"), ([1.0, 1.0], "▁▁"), ([2.0, 0.0], "█▁"), ([float(n) for n in range(16)], "▁▂▃▄▅▆▇█")],
)
def test_the_curve_goes_from_lowest_to_highest(values: list[float], curve: str) -> None:
    assert sparkline(values, width=8) == curve


def watched(*events: bytes) -> Progress:
    progress = Progress(20)
    for line in events:
        progress.update(told(line))
    return progress


def told(line: bytes) -> Event:
    parsed = parse_event(line)
    assert parsed is not None
    return parsed


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


def test_a_run_is_shown_with_all_that_matters() -> None:
    console = screen()
    console.print(render_run(spec(), watched(event("start", 10.0), STEP), idle_s=3.0))
    text = "\n".join(drawn(console))
    for part in ("5/20", "25%", "1.2500", "640 images/s", "compute 80%", "communication 20%", "p1-03 (sw1:3)", "44 °C"):
        assert part in text
    assert "0:05 elapsed" in text


def test_what_was_found_on_held_out_samples_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = event("evaluate", 13.0, step=5, top1=0.5, top5=0.875, loss=1.0, samples=40)
    console = screen()
    console.print(render_run(spec(), watched(STEP, found)))
    assert "test accuracy 50.0% (top 5: 87.5%) at step 5" in "\n".join(drawn(console))
    log = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", log)
    with PlainRunView() as view:
        view.update(watched(STEP, found), told(found))
    assert drawn(log) == ["step 5/20  test accuracy 50.0% (top 5: 87.5%)"]


@pytest.mark.parametrize(
    ("reached", "line"),
    [
        (0.5, "gradients: ring, int8, at 50% of what a probe found the links to allow; 2.0% of a step waits for them"),
        (
            1.5,
            "gradients: ring, int8, faster than what a probe found the links to allow; 2.0% of a step waits for them",
        ),
        (None, "gradients: ring, int8; 2.0% of a step waits for them"),  # phones stepped alone
    ],
)
def test_a_run_ends_with_how_gradients_travelled(
    monkeypatch: pytest.MonkeyPatch, reached: float | None, line: str
) -> None:
    chosen = event("comm_plan", 10.0, algorithm="ring", wire="int8", bucket_bytes=4, predicted_s=0.5, limit_s=0.25)
    done = event("done", 13.0, steps=20, line_rate_fraction=reached, exposed_comm_fraction=0.02)
    shown = Console(file=io.StringIO(), width=120)
    monkeypatch.setattr("orchestrator.view.run_summary.out", shown)
    print_summary(spec(), watched(event("start", 10.0), chosen, STEP, done), None)
    assert f"  {line}" in drawn(shown)


def test_a_share_that_changes_is_one_line_that_says_whose_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "p1-02 (sw1:2) 32 -> 16 images a step: an image takes it 3.0 times as long as the others"
    share = event("rebalance", 13.0, step=7, batches=[48, 16], reason=why)
    pause, resume = (event(kind, 14.0, reason=f"p1-01 {kind}s") for kind in ("pause", "resume"))
    console = screen()
    console.print(render_run(spec(), watched(STEP, share, pause)))
    text = "\n".join(drawn(console))
    assert "from step 7: p1-02 (sw1:2) 32 -> 16 images a step" in text
    assert "p1-01 pauses" in text
    log = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", log)
    with PlainRunView() as view:
        for line in (share, pause, resume):
            view.update(watched(share), told(line))
    assert drawn(log) == [f"from step 7: {why}", "p1-01 pauses", "p1-01 resumes"]
    assert summary_json(spec(), watched(share), None)["batch_changes"] == [
        {"step": 7, "batches": (48, 16), "reason": why}
    ]


def test_the_live_view_draws_from_the_first_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    console = screen()
    monkeypatch.setattr("orchestrator.view.run_live.err", console)
    with LiveRunView(None) as view:
        view.phase("checking", 2, 4)
    with LiveRunView(spec()) as view:
        view.disconnected("no route")
        view.update(watched(STEP), told(STEP))
    text = "\n".join(drawn(console))
    assert "checking 4 phones: 2 of 4" in text
    assert "5/20" in text


def test_a_log_gets_lines_and_no_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("orchestrator.view.run_plain.err", console)
    warning = event("warning", 11.0, message="\x1b[31mhot")
    with PlainRunView() as view:
        view.phase("checking", 4, 4)
        progress = watched(warning, STEP)
        view.update(progress, told(warning))
        view.update(progress, told(STEP))
    lines = drawn(console)
    assert lines[0] == "checking 4 phones: done"
    assert lines[1] == "warning: p1-01: \\x1b[31mhot"
    assert lines[2].startswith("step 5/20  loss 1.2500  640 images/s")


def test_a_step_without_figures_is_still_a_line() -> None:
    assert format_step(watched(event("step", 1.0, step=1))) == "step 1/20"


def test_a_plan_of_138_phones_is_a_few_lines() -> None:
    console = screen()
    print_plan(console, spec(138, switches=3), ["mpirun", "-np", "138", "two words"])
    lines = drawn(console)
    assert len(lines) < 12
    assert any("0 .. 45" in line and "sw1:1 .. 46" in line for line in lines)
    assert lines[-1].endswith("'two words'")


@pytest.mark.parametrize(
    ("algorithm", "wire", "words"),
    [
        ("auto", "auto", "allreduce: algorithm chosen by a link probe, fp32 or fp16"),
        ("ring", "auto", "allreduce: ring, fp32 or fp16"),
        ("ring", "int8", "allreduce: ring, int8"),
        ("mpi", "auto", "allreduce: mpi, fp32"),
        ("chunkwise", "auto", "allreduce: chunkwise, fp32"),
    ],
)
def test_plan_shows_algorithm_and_wire_format(algorithm: str, wire: str, words: str) -> None:
    console = screen()
    print_plan(console, replace(spec(), communication=CommunicationSpec(algorithm, wire)), ["mpirun"])
    assert words in drawn(console)
