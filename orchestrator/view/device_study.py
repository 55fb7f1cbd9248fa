"""A study on the terminal: what is being measured, then tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.status import Status
from rich.table import Table
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
from orchestrator.view.width import wide_enough
from phone_agent.contract.device_study import Case, Facts, Load, Operation, Row, Sample


class Progress:
    """Told of rows from any thread."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def show(self, device: str, row: Row) -> None:
        if self._status:
            self._status.update(Text(one_line(f"{device}: {_about(row)}")))


@contextmanager
def progress() -> Iterator[Progress]:
    """On a terminal only."""
    if not err.is_terminal:
        yield Progress(None)
        return
    with err.status("looking at the device") as status:
        yield Progress(status)


def print_study(study: Study) -> None:
    for device in study.devices:
        _print_device(device)


def _print_device(device: DeviceStudy) -> None:
    out.print(Text.assemble((device.name, "bold"), f" ({one_line(device.where)})"))
    if device.facts:
        out.print(_facts(device.facts), soft_wrap=True)
    if device.virtual:
        out.print(Text("a virtual phone: this computer's processor; its battery and thermometer are made up", "dim"))
    tables = (
        _cases("networks", device.models),
        _cases("width x depth", device.sweep),
        _operations(device.operations),
        _loads(device.loads),
        _contests(device),
        _heat(device.samples),
        _beside(device),
    )
    for table in tables:
        if table.row_count:
            wide_enough(out).print(table)
    if device.error:
        out.print(Text(f"it did not answer to the end: {one_line(device.error)}", "red"), soft_wrap=True)
    if device.remedy:
        next_step(one_line(device.remedy), "try")


def _facts(facts: Facts) -> Text:
    opencl = facts.opencl or f"no OpenCL: {facts.why_no_opencl}"
    words = (facts.model, facts.processor, facts.system, f"{facts.threads} threads", facts.kernels, opencl)
    return Text("  " + ", ".join(one_line(word) for word in words if word))


def _cases(title: str, cases: list[Case]) -> Table:
    batch = cases[0].batch_asked if cases else 0
    table = _table(title, "on", "parameters", "FLOP/image", "memory", f"train {batch}", f"infer {batch}", "GFLOP/s", "")
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
    table.columns[-1].justify = "left"
    if any(map(is_scaled, cases)):
        table.caption = "† measured with fewer images, and scaled"
    return table


def _operations(rows: list[Operation]) -> Table:
    table = _table("where the time goes", "on", "operation", "direction", "time", "of the step", left=3)
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


def _loads(loads: list[Load]) -> Table:
    table = _table("doing", "network", "on", "processor", "resident", "power", "temperature", "clock", left=2)
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


def _contests(device: DeviceStudy) -> Table:
    table = _table("beside an application", "its rounds/s", "a training step")
    for contest in device.contests:
        rate = "" if contest.foreground_rate is None else f"{contest.foreground_rate:.0f}"
        table.add_row(one_line(contest.situation), rate or one_line(contest.why), format_seconds(contest.training_s))
    return table


def _heat(samples: list[Sample]) -> Table:
    table = _table("thermal run", "a step", "temperature", "clock", "power")
    for sample in samples[:: max(1, len(samples) // 12)]:
        readings = (
            _known(sample.temperature_c, "{:.1f} °C"),
            _known(sample.frequency_mhz, "{:.0f} MHz"),
            _known(sample.power_w, "{:.2f} W"),
        )
        table.add_row(f"{sample.at_s / 60:.1f} min", format_seconds(sample.training_s), *readings)
    return table


def _beside(device: DeviceStudy) -> Table:
    table = _table("beside the papers", "published", "measured", "where")
    table.columns[3].justify = "left"
    for finding in findings(device):
        if finding.measured is not None:
            figure = finding.figure
            shown = format_quantity(figure.value, figure.unit), format_quantity(finding.measured, figure.unit)
            table.add_row(figure.what, *shown, figure.where)
    return table


def _table(first: str, *columns: str, left: int = 1) -> Table:
    table = Table(first, box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right")
    return table


def _known(value: float | None, form: str) -> Text:
    return Text(NOT_AVAILABLE, "dim") if value is None else Text(form.format(value))


def _about(row: Row) -> str:
    match row:
        case Facts():
            return "looked at"
        case Case():
            return f"timed {row.name} on {row.backend}"
        case Operation():
            return f"took {row.network} apart on {row.backend}"
        case Load():
            return f"{row.activity} {row.network}"
        case Sample():
            return f"{row.at_s / 60:.1f} minutes of training"
    return f"{row.situation}"
