"""The whole page: header, each device, and the tables of the paper counted again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from orchestrator.device_study.published import CHEN, MISPRINTS, TABLE_4_UNIT, TABLE_4_UNIT_WHY
from orchestrator.device_study.recount import TABLES, format_like
from orchestrator.device_study.recount import Cell as Recounted
from orchestrator.device_study.recount import cells as recounted
from orchestrator.device_study.report import sections
from orchestrator.device_study.report.markup import Cell, Html, element, join, paragraph, plain, table, tag
from orchestrator.device_study.report.style import CSS
from orchestrator.device_study.result import DeviceStudy, Study

TITLE = "What one device can do"


def page(study: Study) -> str:
    body = element(
        "main", _header(study), *(_device(device, study) for device in study.devices), _recount(), _footer(study)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{plain(_title(study))}</title><style>{CSS}</style></head>\n<body>{body}</body></html>\n"
    )


def _title(study: Study) -> str:
    names = ", ".join(_device_name(device) for device in study.devices[:3])
    return f"{TITLE}: {names}{' and others' if len(study.devices) > 3 else ''}"


def _device_name(device: DeviceStudy) -> str:
    return device.facts.model if device.facts and device.facts.model and not device.virtual else device.name


def _header(study: Study) -> Html:
    made = time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(study.made))
    kinds = join([
        tag("measured"), " in this run   ", tag("modeled"), " by our planner, or scaled from fewer images (†)   ",
        tag("published"), " by others, with the source",
    ])  # fmt: skip
    return element(
        "header",
        element("h1", _title(study)),
        paragraph(
            f"Training and inference of neural networks on one device, measured by clusterctl {study.version} on "
            f"{made}, compared with published results for other devices.",
            css="soft",
        ),
        paragraph(kinds, css="note"),
        _contents(study),
    )


def _contents(study: Study) -> Html:
    if len(study.devices) < 2:
        return Html("")
    return element("nav", *(Html(f'<a href="#device-{index}">{plain(device.name)}</a>')
                            for index, device in enumerate(study.devices)))  # fmt: skip


def _device(device: DeviceStudy, study: Study) -> Html:
    index = study.devices.index(device)
    several = len(study.devices) > 1
    name = Html(f'<h2 id="device-{index}">{plain(f"{device.name} ({device.where})")}</h2>') if several else Html("")
    trouble = element("div", f"Measurement did not finish: {device.error}", css="warn") if device.error else Html("")
    return join([name, sections.facts(device), trouble, *(section(device) for section in sections.SECTIONS)])


def _recount() -> Html:
    found = list(recounted())
    wrong = [
        (f"table {each.table}", str(each.width), str(each.depth), each.column, Cell(each.printed), each.should_be,
         Cell(each.why, "wrap"))
        for each in MISPRINTS
    ]  # fmt: skip
    return join([
        element("h2", "The paper's tables, counted again"),
        paragraph(
            f"FLOPs and parameters as printed by {CHEN}, and below them our count for the same network: "
            "forward and two backward passes of 128 images, including biases and the gradient of the image. "
            f"{sum(cell.agrees for cell in found)} of {len(found)} cells agree, rounded or truncated; "
            "the others are misprints."
        ),
        *(_table(number, [cell for cell in found if cell.table == number]) for number in TABLES),
        paragraph(f"Table 4's FLOPs are given times {TABLE_4_UNIT}, as printed. {TABLE_4_UNIT_WHY}", css="note"),
        element("h3", "Misprints"),
        table(("where", "width", "depth", "column", "printed", "should be", Cell("why", "left")), wrong),
    ])  # fmt: skip


def _table(number: int, cells: list[Recounted]) -> Html:
    name = {"fc": "dense layers only", "conv": "convolutions only"}[cells[0].family]
    widths = sorted({cell.width for cell in cells})
    headings = ["depth", *(f"{column}, width {width}" for width in widths for column in ("FLOPs", "parameters"))]
    rows = (_row(depth, [cell for cell in cells if cell.depth == depth]) for depth in sorted({c.depth for c in cells}))
    return join([element("h3", f"Table {number}: {name}"), table(headings, rows)])


def _row(depth: int, cells: Iterable[Recounted]) -> list[str | Html | Cell]:
    ordered = sorted(cells, key=lambda cell: (cell.width, cell.column != "flops"))
    return [str(depth), *(_counted(cell) for cell in ordered)]


def _counted(cell: Recounted) -> Cell:
    ours = element("small", format_like(cell.printed, cell.exact))
    printed = element("s", cell.printed) if cell.misprint else plain(cell.printed)
    return Cell(join([printed, ours]), "wrong" if cell.misprint else "")


def _footer(study: Study) -> Html:
    request = study.request
    return element(
        "footer",
        paragraph(
            "FLOPs count multiplications and additions of convolutions and dense layers by the direct method; kernels "
            "that need fewer (Winograd's) show as faster. Memory planned is for the requested batch. Resident memory "
            "is the peak of a separate process. Images are noise: time does not depend on them. "
            f"Batch {request.batch}{', quick' if request.quick else ''}.",
            css="note",
        ),
    )
