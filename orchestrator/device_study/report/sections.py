"""The sections of the report about one device. What was not studied is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from orchestrator.device_study.findings import GRADIENTS, Finding, findings, image_s
from orchestrator.device_study.published import OUT_OF_MEMORY, SOURCES
from orchestrator.device_study.report import svg
from orchestrator.device_study.report.markup import (
    Cell,
    Html,
    charts,
    details,
    element,
    figure,
    join,
    legend,
    paragraph,
    table,
    tag,
)
from orchestrator.device_study.result import DeviceStudy, gflops, is_scaled, scaled_s
from orchestrator.format import (
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_percent,
    format_quantity,
    format_seconds,
    format_tick,
)
from phone_agent.contract.device_study import (
    EQUAL_PRIORITY,
    FOREGROUND_ALONE,
    TRAINING_ALONE,
    TRAINING_LOW_PRIORITY,
    Case,
    Facts,
    Load,
    Operation,
)

Section = Callable[[DeviceStudy], Html]

FAMILY_NAMES = {"fc": "Dense layers only", "conv": "Convolutions only", "separable": "Depthwise separable only"}
BACKEND_NAMES = {"cpu": "CPU", "opencl": "OpenCL"}
ACTIVITY_COLORS = {"training": "--c2", "inference": "--c1"}
KINDS = (  # prefix of the operation's name, its label, its color
    ("conv_forward", "convolution, dense", "--c1"),
    ("conv_backward_weights", "gradient of filters", "--c2"),
    ("conv_backward_data", "gradient of inputs", "--c6"),
    ("depthwise", "depthwise convolution", "--c3"),
    ("norm", "normalization", "--c4"),
    ("pool", "pooling", "--c5"),
    ("", "everything else", "--c0"),
)
SCALED = "†"
PUBLISHED_COLOR, MEASURED_COLOR = "--c2", "--c3"


def facts(device: DeviceStudy) -> Html:
    known = device.facts
    if known is None:
        return Html("")
    boxes = [
        element("div", element("b", name), value, css="wide" if len(value) > 34 else "")
        for name, value in _facts(device, known)
        if value
    ]
    grid = element("div", *boxes, css="facts")
    virtual = "A virtual phone: it uses this computer's processor; its battery and thermometer are simulated."
    return join([grid, element("div", virtual, css="warn") if device.virtual else Html("")])


def _facts(device: DeviceStudy, known: Facts) -> Iterable[tuple[str, str]]:
    yield "device", known.model or device.where
    yield "processor", known.processor or known.architecture
    yield "cores", f"{known.cores}, {known.threads} compute"
    yield "highest clock", f"{known.frequency_max_mhz} MHz" if known.frequency_max_mhz else ""
    yield "kernels", known.kernels or ""
    yield "memory", format_bytes(known.memory_bytes)
    yield "memory budget", format_bytes(known.budget_bytes)
    yield "system", known.system
    yield "OpenCL", known.opencl or f"none: {known.why_no_opencl}"


def tiles(device: DeviceStudy) -> Html:
    """The headline figures."""
    best: dict[str, tuple[float, Case]] = {}
    for case in device.models:
        if (speed := image_s(case, "training")) and speed < best.get(case.name, (float("inf"), case))[0]:
            best[case.name] = (speed, case)
    boxes = [
        element(
            "div",
            element("b", f"{name}, training"),
            element("span", f"{1 / speed:,.0f}" if speed < 0.1 else f"{1 / speed:.1f}"),
            element("small", f"images/s, {_backend(case.backend)}"),
        )
        for name, (speed, case) in best.items()
    ]
    fastest = max((rate for case in (*device.models, *device.sweep) if (rate := gflops(case))), default=None)
    if fastest:
        small = element("small", "GFLOP/s, direct method")
        boxes.append(element("div", element("b", "fastest training"), element("span", f"{fastest:.0f}"), small))
    return element("div", *boxes, css="tiles") if boxes else Html("")


def models(device: DeviceStudy) -> Html:
    cases = device.models
    if not cases:
        return Html("")
    names, batch = _names(cases), cases[0].batch_requested
    times = svg.bars("Time of a step by network", [_model_bars(name, cases) for name in names])
    speeds = svg.bars("Training speed by network", [_speed_bars(name, cases) for name in names])
    return join([
        element("h2", "Three networks"),
        paragraph(
            "Images of CIFAR-10's shape. Training is a whole step: forward, backward and update. "
            "Inference is forward alone, with running statistics."
        ),
        charts(
            figure(f"Time for {batch} images", _median_note(cases), times),
            figure("Training speed", "GFLOP/s by the direct method", speeds),
        ),
        _case_table(cases, with_size=False),
    ])  # fmt: skip


def sweep(device: DeviceStudy) -> Html:
    cases = device.sweep
    if not cases:
        return Html("")
    parts: list[Html] = [
        element("h2", "Width and depth"),
        paragraph(
            "Networks of only one kind of layer, without activations and pooling. Both axes are logarithmic; each line "
            "is a width. A cross at the top is a network that does not fit in memory, by its plan; it was not tried."
        ),
    ]
    for family, name in FAMILY_NAMES.items():
        mine = [case for case in cases if case.family == family]
        if mine:
            drawn = [each for backend in _backends(mine) for each in _sweep_figures(name, mine, backend)]
            parts += [
                element("h3", name),
                charts(*drawn),
                _out_of_memory(mine),
                details(f"{len(mine)} networks in numbers", _case_table(mine, with_size=True)),
            ]
    return join([*parts, _separable(cases)])


def operations(device: DeviceStudy) -> Html:
    rows = [row for row in device.operations if not row.why]
    if not rows:
        return Html("")
    figures = [_operation_figure(network, backend, rows) for network, backend in _pairs(rows)]
    return join([
        element("h2", "Where the time of a step goes"),
        paragraph(
            "Each operation timed alone, the best of three runs, summed by kind. "
            "A dense layer runs as a 1x1 convolution. The optimizer update is not included."
        ),
        legend((name, color) for _, name, color in KINDS),
        charts(*figures),
        details("All operations in numbers", _operation_table(rows)),
    ])  # fmt: skip


def power(device: DeviceStudy) -> Html:
    loads = device.loads
    if not loads:
        return Html("")
    drawn = []
    if any(load.power_w is not None for load in loads):
        drawn.append(
            figure("Battery power", "current x voltage, averaged", svg.bars("Battery power", _power_bars(loads)))
        )
    drawn.append(figure("Processor time", "100% is one core", svg.bars("Processor time", _cpu_bars(loads))))
    plugged = {load.plugged for load in loads if load.plugged not in {None, "UNPLUGGED", "Discharging"}}
    notes = [paragraph(loads[0].why.capitalize(), ".", css="note")] if loads[0].power_w is None else []
    if basis := next((load.power_basis for load in loads if load.power_basis), ""):
        notes.append(paragraph("Unit of the battery current: ", basis, ".", css="note"))
    if plugged:
        notes.append(element(
            "div", "The device was on a charger: the power that charges its battery is included. "
            "Unplug it to measure what training needs.", css="warn",
        ))  # fmt: skip
    return join([element("h2", "Processor, memory, battery"), charts(*drawn), *notes, _load_table(loads)])


def foreground(device: DeviceStudy) -> Html:
    by = {run.situation: run for run in device.interference}
    if not by:
        return Html("")
    rates = [
        svg.Bar(_short(name), rate, "--c3", f"{rate:.0f} rounds/s" if rate else "")
        for name in (FOREGROUND_ALONE, TRAINING_LOW_PRIORITY, EQUAL_PRIORITY)
        if name in by and (rate := by[name].foreground_rate) is not None
    ]
    times = [
        svg.Bar(_short(name), step, "--c2", format_seconds(step))
        for name in (TRAINING_ALONE, TRAINING_LOW_PRIORITY, EQUAL_PRIORITY)
        if name in by and (step := by[name].training_s) is not None
    ]
    return join([
        element("h2", "Training behind an application"),
        paragraph(
            "The application is one process per compute core that finds primes; the model trained is "
            f"{next(iter(by.values())).network}. As in a run, training has low priority (niceness 10); the last bar of "
            "each plot shows equal priority for comparison."
        ),
        charts(
            figure("The application", "more is better", svg.bars("Speed of the application", [svg.Group("", rates)])),
            figure("A training step", "less is better", svg.bars("Time of a training step", [svg.Group("", times)])),
        ),
    ])  # fmt: skip


def heat(device: DeviceStudy) -> Html:
    samples = device.samples
    if len(samples) < 2:
        return Html("")
    readings: tuple[tuple[str, list[tuple[float, float | None]], svg.Format], ...] = (
        ("Time of a step", [(each.at_s, each.training_s) for each in samples], format_tick),
        ("Temperature", [(each.at_s, each.temperature_c) for each in samples], lambda value: f"{value:.0f} °C"),
        ("Clock of the big cores", [(each.at_s, each.frequency_mhz) for each in samples], lambda value: f"{value:.0f}"),
        ("Battery power", [(each.at_s, each.power_w) for each in samples], lambda value: f"{value:.1f} W"),
    )
    drawn, missing = [], []
    for name, points, y_format in readings:
        known = [(at / 60, value) for at, value in points if value is not None]
        if len(known) < 2:
            missing.append(name.lower())
            continue
        plot = svg.lines(
            name, [svg.Line("", known)], "minutes", y_format, lambda minute: f"{minute:g}", log=False, height=190
        )
        small = "MHz" if name.startswith("Clock") else f"by {samples[0].thermometer}" if name == "Temperature" else ""
        drawn.append(figure(name, small, plot))
    about = f"{samples[0].network}, batch {samples[0].batch}, on {_backend(samples[0].backend)}"
    left = (
        paragraph(f"{NOT_AVAILABLE.capitalize()} on this device: {', '.join(missing)}.", css="note") if missing else ""
    )
    return join([element("h2", "Minutes of training"), paragraph(about, "."), charts(*drawn), left])


def compared(device: DeviceStudy) -> Html:
    found = findings(device)
    headings = ("", tag("published"), tag("measured"), Cell("source", "left"))
    sources = "; ".join(f"{name}: {work}" for name, work in SOURCES.items())
    return join([
        element("h2", "Compared with the papers"),
        paragraph(
            "Figures stated in the papers, and those of this device. Ratios over width (64 to 512) or depth (1 to 8) "
            "are the largest measured."
        ),
        legend((("published", PUBLISHED_COLOR), ("measured here", MEASURED_COLOR))),
        charts(*_dot_figures(found)),
        table(headings, map(_compared_row, found)),
        paragraph(sources, ".", css="note"),
    ])  # fmt: skip


def _dot_figures(found: Sequence[Finding]) -> Iterable[Html]:
    """Ratios have a logarithmic axis: 2 and 1/2 are equally far from 1."""
    for unit, caption, small in (("x", "Ratios", "times; logarithmic"), ("%", "Shares and losses", "percent")):
        dots = [
            svg.Dots(finding.figure.what, (
                (PUBLISHED_COLOR, finding.figure.value, format_quantity(finding.figure.value, unit)),
                (MEASURED_COLOR, finding.measured, format_quantity(finding.measured, unit)),
            ))
            for finding in found if finding.figure.unit == unit and finding.measured is not None
        ]  # fmt: skip
        if dots:
            yield figure(caption, small, svg.dots(caption, dots, log=unit == "x"))


def _compared_row(finding: Finding) -> Sequence[str | Html | Cell]:
    known, unit = finding.measured is not None, finding.figure.unit
    measured = format_quantity(finding.measured, unit) if finding.measured is not None else "not measured"
    return (
        Cell(finding.figure.what, "wrap"),
        format_quantity(finding.figure.value, unit),
        Cell(measured, "" if known else "soft"),
        Cell(f"{finding.figure.source}, {finding.figure.where}", "left soft"),
    )


SECTIONS: tuple[Section, ...] = (tiles, models, sweep, operations, power, foreground, heat, compared)


def _backend(name: str) -> str:
    return BACKEND_NAMES.get(name, name)


def _names(cases: Iterable[Case]) -> list[str]:
    return list(dict.fromkeys(case.name for case in cases))


def _backends(cases: Iterable[Case]) -> list[str]:
    return list(dict.fromkeys(case.backend for case in cases))


def _pairs(rows: Iterable[Operation]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.network, row.backend) for row in rows))


def _median_note(cases: Sequence[Case]) -> str:
    scaled = f"; {SCALED} measured with fewer images and scaled" if any(map(is_scaled, cases)) else ""
    return f"median of at least two{scaled}"


def _model_bars(name: str, cases: Sequence[Case]) -> svg.Group:
    bars = []
    for case in (each for each in cases if each.name == name):
        label = _backend(case.backend)
        if case.batch is None:
            bars.append(svg.Bar(label, None, "--c0", _brief(case)))
            continue
        mark = f" {SCALED}" if is_scaled(case) else ""
        for activity, taken in (("training", case.training_s), ("inference", case.inference_s)):
            value = scaled_s(taken, case)
            bars.append(svg.Bar(f"{label} {activity}", value, ACTIVITY_COLORS[activity], format_seconds(value) + mark))
    return svg.Group(name, bars)


def _speed_bars(name: str, cases: Sequence[Case]) -> svg.Group:
    colors = {"cpu": "--c5", "opencl": "--c3"}
    return svg.Group(name, [
        svg.Bar(_backend(case.backend), rate, colors.get(case.backend, "--c0"),
                f"{rate:.1f}" if rate else _brief(case))
        for case in cases if case.name == name for rate in [gflops(case)]
    ])  # fmt: skip


def _brief(row: Case | Load) -> str:
    """Why there is no figure: the error code in plain words, or the explanation, shortened."""
    words = row.code.replace("_", " ") or row.why
    return words if len(words) <= 36 else f"{words[:35]}…"


def _sweep_figures(name: str, cases: Sequence[Case], backend: str) -> Iterable[Html]:
    mine = [case for case in cases if case.backend == backend]
    for activity in ("training", "inference"):
        lines = [_line(width, mine, activity) for width in sorted({case.width for case in mine})]
        drawn = svg.lines(f"{name}, {activity}", lines, "layers", format_tick, lambda depth: f"{depth:g}", log=True)
        where = f"{_backend(backend)}, {mine[0].batch_requested} images, by width"
        if drawn:
            yield figure(activity.capitalize(), where, drawn)


def _line(width: int, cases: Sequence[Case], activity: str) -> svg.Line:
    mine = [case for case in cases if case.width == width]
    times = (
        (case.depth, scaled_s(case.training_s if activity == "training" else case.inference_s, case)) for case in mine
    )
    points = sorted((float(depth), taken) for depth, taken in times if taken)
    return svg.Line(str(width), points, [float(case.depth) for case in mine if case.batch is None])


def _out_of_memory(cases: Sequence[Case]) -> Html:
    short = [
        f"{case.width} wide and {case.depth} deep ({format_bytes(case.planned_bytes)})" for case in cases if case.why
    ]
    published = [f"{width} wide and {depth} deep" for family, width, depth in sorted(OUT_OF_MEMORY)
                 if any(case.family == family for case in cases)]  # fmt: skip
    notes = [f"Not measured here: {'; '.join(dict.fromkeys(short))}."] if short else []
    notes += [f"Published: out of memory on a Pixel 2 at {' and '.join(published)}."] if published else []
    return paragraph(" ".join(notes), css="note") if notes else Html("")


def _separable(cases: Sequence[Case]) -> Html:
    """One layer of each kind, by width: how much a separable convolution saves."""
    colors = {"conv": "--c2", "separable": "--c3"}
    names = {"conv": "standard", "separable": "separable"}
    figures = []
    for activity in ("training", "inference"):
        groups = []
        for width in sorted({case.width for case in cases}):
            one = {case.family: case for case in cases if (case.width, case.depth, case.backend) == (width, 1, "cpu")}
            times = {family: scaled_s(case.training_s if activity == "training" else case.inference_s, case)
                     for family, case in one.items() if family in colors}  # fmt: skip
            bars = [
                svg.Bar(names[family], taken, colors[family], format_seconds(taken))
                for family, taken in times.items()
                if taken
            ]
            if len(bars) == 2:
                groups.append(svg.Group(f"{width} wide", bars))
        if groups:
            figures.append(figure(activity.capitalize(), "one layer, CPU", svg.bars(f"One layer, {activity}", groups)))
    if not figures:
        return Html("")
    return join([element("h3", "One layer: standard against separable"), charts(*figures)])


def _case_table(cases: Sequence[Case], *, with_size: bool) -> Html:
    batch = cases[0].batch_requested
    headings = ("width x depth" if with_size else "network", Cell("on", "left"), "parameters", "FLOP forward",
                "FLOP training", "memory planned", "memory resident", "images timed", f"training of {batch}",
                f"inference of {batch}", "GFLOP/s")  # fmt: skip
    return table(headings, (_case_row(case, with_size=with_size) for case in cases))


def _case_row(case: Case, *, with_size: bool) -> list[str | Html | Cell]:
    name = f"{case.width} x {case.depth}" if with_size else case.name
    row: list[str | Html | Cell] = [name, Cell(_backend(case.backend), "left")]
    flops = (format_count(case.forward_flops), format_count(case.training_flops))
    row += [f"{case.parameters:,}".replace(",", " "), *flops, format_bytes(case.planned_bytes)]
    if case.batch is None:
        return [*row, Cell(case.why, "none", span=5)]
    mark = f" {SCALED}" if is_scaled(case) else ""
    times = (format_seconds(scaled_s(each, case)) + mark for each in (case.training_s, case.inference_s))
    rate = gflops(case)
    return [*row, format_bytes(case.resident_bytes), str(case.batch), *times, f"{rate:.1f}" if rate else ""]


def _kind(name: str) -> tuple[str, str]:
    return next((called, color) for begins, called, color in KINDS if name.startswith(begins))


def _operation_figure(network: str, backend: str, rows: Sequence[Operation]) -> Html:
    mine = [row for row in rows if (row.network, row.backend) == (network, backend)]
    whole = sum(row.seconds for row in mine)
    stacked = []
    for direction in ("forward", "backward"):
        same = [row for row in mine if (row.direction == "forward") == (direction == "forward")]
        by = {color: sum(row.seconds for row in same if _kind(row.kind)[1] == color) for _, _, color in KINDS}
        spent = sum(by.values())
        share = 100 * spent / whole if whole else 0.0
        parts = [(color, taken) for color, taken in by.items() if taken]
        stacked.append(svg.Stack(f"{direction}: {format_seconds(spent)}, {share:.0f}% of the step", parts))
    gradients = sum(row.seconds for row in mine if row.kind in GRADIENTS)
    where = f"{_backend(backend)}, batch {mine[0].batch}"
    small = f"{where}; convolution gradients {format_percent(gradients / (whole or 1))} of the step"
    return figure(network, small, svg.stacks(f"Time by operation of {network}", stacked))


def _operation_table(rows: Sequence[Operation]) -> Html:
    headings = ("network", Cell("on", "left"), Cell("operation", "left"), Cell("direction", "left"), "time", "GFLOP/s")
    return table(headings, ([
        row.network, Cell(_backend(row.backend), "left"), Cell(row.kind, "left"),
        Cell(row.direction, "left"), format_seconds(row.seconds),
        f"{row.flops / row.seconds / 1e9:.1f}" if row.flops and row.seconds else "",
    ] for row in rows))  # fmt: skip


def _activity(load: Load) -> str:
    return load.activity if not load.network else f"{load.activity}, {_backend(load.backend)}"


def _by_network(loads: Sequence[Load], bar: Callable[[Load], svg.Bar]) -> list[svg.Group]:
    names = dict.fromkeys(load.network for load in loads)
    return [svg.Group(name or "at rest", [bar(load) for load in loads if load.network == name]) for name in names]


def _power_bars(loads: Sequence[Load]) -> list[svg.Group]:
    def bar(load: Load) -> svg.Bar:
        text = NOT_AVAILABLE if load.power_w is None else f"{load.power_w:.2f} W"
        return svg.Bar(_activity(load), load.power_w, ACTIVITY_COLORS.get(load.activity, "--c0"), text)

    return _by_network(loads, bar)


def _cpu_bars(loads: Sequence[Load]) -> list[svg.Group]:
    def bar(load: Load) -> svg.Bar:
        text = format_percent(load.cpu_share) or _brief(load)
        return svg.Bar(_activity(load), load.cpu_share, ACTIVITY_COLORS.get(load.activity, "--c0"), text)

    return _by_network(loads, bar)


def _load_table(loads: Sequence[Load]) -> Html:
    headings = ("", Cell("network", "left"), Cell("on", "left"), "processor", "resident", "power", "current", "voltage",
                "temperature", "clock")  # fmt: skip
    return table(headings, ([
        load.activity, Cell(load.network, "left"), Cell(_backend(load.backend), "left"),
        format_percent(load.cpu_share), format_bytes(load.resident_bytes), _known(load.power_w, "{:.2f} W"),
        _known(load.current_a, "{:.3f} A"), _known(load.voltage_v, "{:.2f} V"),
        _known(load.temperature_c, "{:.1f} °C"), _known(load.frequency_mhz, "{:.0f} MHz"),
    ] for load in loads))  # fmt: skip


def _known(value: float | None, form: str) -> Cell:
    return Cell(NOT_AVAILABLE, "soft") if value is None else Cell(form.format(value))


def _short(situation: str) -> str:
    return {
        FOREGROUND_ALONE: "alone",
        TRAINING_ALONE: "alone",
        TRAINING_LOW_PRIORITY: "training at low priority",
        EQUAL_PRIORITY: "equal priority",
    }[situation]
