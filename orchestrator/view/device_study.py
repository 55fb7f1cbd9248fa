"""`bench device` on the terminal: what is being measured, then the results as tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.status import Status
from rich.text import Text

from orchestrator.device_study.findings import findings
from orchestrator.device_study.result import DeviceStudy, Study, gflops, is_scaled, scaled_s
from orchestrator.format import (
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_percent,
    format_quantity,
    format_seconds,
)
from orchestrator.text import one_line
from orchestrator.view.console import err, next_step, out
from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.contract.device_study import Case, Facts, Load, Operation, Row, Sample


class StudyProgress:
    """Rows may arrive from any thread."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def show(self, device: str, row: Row) -> None:
        if self._status:
            self._status.update(Text(one_line(f"{device}: {_about(row)}")))


@contextmanager
def study_progress() -> Iterator[StudyProgress]:
    """On a terminal only."""
    if not err.is_terminal:
        yield StudyProgress(None)
        return
    with err.status("reading device properties") as status:
        yield StudyProgress(status)


def print_study(study: Study) -> None:
    for device in study.devices:
        _print_device(device)


def _print_device(device: DeviceStudy) -> None:
    out.print(Text.assemble((device.name, "bold"), f" ({one_line(device.where)})"))
    if device.facts:
        out.print(_facts(device.facts), soft_wrap=True)
    if device.virtual:
        out.print(
            Text("virtual phone: uses this computer's CPU; battery and temperature readings are simulated", "dim")
        )
    for table in render_tables(device):
        if table.row_count:
            print_table(out, table)
    if device.error:
        out.print(Text(f"measurement did not finish: {one_line(device.error)}", "red"), soft_wrap=True)
    if device.remedy:
        next_step(one_line(device.remedy), "try")


def render_tables(device: DeviceStudy) -> tuple[FitTable, ...]:
    return (
        _cases("model", device.models),
        _cases("width x depth", device.sweep),
        _operations(device.operations),
        _loads(device.loads),
        _interference(device),
        _thermal(device.samples),
        _published(device),
    )


def _facts(facts: Facts) -> Text:
    opencl = facts.opencl or f"no OpenCL: {facts.why_no_opencl}"
    words = (facts.model, facts.processor, facts.system, f"{facts.threads} threads", facts.kernels, opencl)
    return Text("  " + ", ".join(one_line(word) for word in words if word))


def _cases(title: str, cases: list[Case]) -> FitTable:
    batch = cases[0].batch_requested if cases else 0
    table = FitTable(
        title,
        "backend",
        Column("parameters", right=True, priority=3),
        Column("FLOP/image", right=True, priority=4),
        Column("memory", right=True, priority=2),
        Column(f"train {batch}", right=True),
        Column(f"infer {batch}", right=True),
        Column("GFLOP/s", right=True, priority=1),
        Column("", wrap=True),
    )
    for case in cases:
        facts = (format_count(case.parameters), format_count(case.forward_flops), format_bytes(case.planned_bytes))
        if case.batch is None:
            why = Text(one_line(case.why, 200), "yellow")
            table.add_row(one_line(case.name), case.backend, *facts, "", "", "", why)
            continue
        mark = "†" if is_scaled(case) else ""
        times = (format_seconds(scaled_s(each, case)) + mark for each in (case.training_s, case.inference_s))
        rate = gflops(case)
        table.add_row(one_line(case.name), case.backend, *facts, *times, f"{rate:.1f}" if rate else "")
    if any(map(is_scaled, cases)):
        table.caption = "† measured with a smaller batch and scaled up"
    return table


def _operations(rows: list[Operation]) -> FitTable:
    table = FitTable(
        "time by operation",
        Column("backend", priority=1),
        Column("operation", wrap=True),
        "direction",
        Column("time", right=True),
        Column("of step", right=True),
    )
    whole: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row.network, row.backend)
        whole[key] = whole.get(key, 0.0) + row.seconds
    for row in rows:
        share = row.seconds / (whole[row.network, row.backend] or 1.0)
        if row.why or share >= 0.01:
            names = (one_line(row.network), row.backend, one_line(row.why or row.kind), row.direction)
            table.add_row(
                *names, format_seconds(row.seconds) if not row.why else "", format_percent(share) if not row.why else ""
            )
    return table


def _loads(loads: list[Load]) -> FitTable:
    table = FitTable(
        "activity",
        "model",
        Column("backend", priority=2),
        Column("CPU", right=True, wrap=True),
        Column("resident", right=True, priority=1),
        Column("power", right=True),
        Column("temperature", right=True, priority=3),
        Column("clock", right=True, priority=4),
    )
    for load in loads:
        readings = (
            _known(load.power_w, "{:.2f} W"),
            _known(load.temperature_c, "{:.1f} °C"),
            _known(load.frequency_mhz, "{:.0f} MHz"),
        )
        about = (one_line(load.activity), one_line(load.network), load.backend)
        table.add_row(
            *about, format_percent(load.cpu_share) or one_line(load.why), format_bytes(load.resident_bytes), *readings
        )
    return table


def _interference(device: DeviceStudy) -> FitTable:
    table = FitTable(
        "with a foreground application",
        Column("its rounds/s", right=True, wrap=True),
        Column("training step", right=True),
    )
    for run in device.interference:
        rate = "" if run.foreground_rate is None else f"{run.foreground_rate:.0f}"
        table.add_row(one_line(run.situation), rate or one_line(run.why), format_seconds(run.training_s))
    return table


def _thermal(samples: list[Sample]) -> FitTable:
    numbers = (Column(title, right=True) for title in ("step", "temperature", "clock", "power"))
    table = FitTable("thermal run", *numbers)
    for sample in samples[:: max(1, len(samples) // 12)]:
        readings = (
            _known(sample.temperature_c, "{:.1f} °C"),
            _known(sample.frequency_mhz, "{:.0f} MHz"),
            _known(sample.power_w, "{:.2f} W"),
        )
        table.add_row(f"{sample.at_s / 60:.1f} min", format_seconds(sample.training_s), *readings)
    return table


def _published(device: DeviceStudy) -> FitTable:
    table = FitTable(
        Column("compared with the papers", wrap=True),
        Column("published", right=True),
        Column("measured", right=True),
        Column("source", wrap=True, priority=1),
    )
    for finding in findings(device):
        if finding.measured is not None:
            figure = finding.figure
            shown = format_quantity(figure.value, figure.unit), format_quantity(finding.measured, figure.unit)
            table.add_row(figure.what, *shown, figure.where)
    return table


def _known(value: float | None, form: str) -> Text:
    return Text(NOT_AVAILABLE, "dim") if value is None else Text(form.format(value))


def _about(row: Row) -> str:
    match row:
        case Facts():
            return "read device properties"
        case Case():
            return f"timed {row.name} on {row.backend}"
        case Operation():
            return f"timed the operations of {row.network} on {row.backend}"
        case Load():
            return f"{row.activity} {row.network}"
        case Sample():
            return f"{row.at_s / 60:.1f} minutes of training"
    return f"{row.situation}"
