"""`clusterctl bench device`: what single phones, or this computer, can do."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.agent_errors import engine_errors
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from orchestrator.device_study.collect import OnRow
    from orchestrator.device_study.result import DeviceStudy, Study
    from phone_agent.contract.device_study import StudyRequest

QUICK_WIDTHS, QUICK_DEPTHS = "64,512", "1,8"
_NUMBERS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_MOST_NUMBERS = 64

HereOption = Annotated[bool, typer.Option("--here", help="This computer, not the phones.")]
PartOption = Annotated[
    list[str] | None,
    typer.Option("--part", help="models, sweep, operations, power, foreground; repeat it. Default: all of them.",
                 show_default=False),
]  # fmt: skip
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", help="mentee, mobilenet_reduced, resnet_reduced; repeat it. Default: all of them.",
                 show_default=False),
]  # fmt: skip
WidthsOption = Annotated[
    str | None, typer.Option(help="Of the swept networks, e.g. 64,512. Default: 64,128,256,512.", show_default=False)
]
DepthsOption = Annotated[
    str | None, typer.Option(help="Of the swept networks, e.g. 1-8. Default: 1,2,4,8.", show_default=False)
]
BackendOption = Annotated[
    list[str] | None, typer.Option("--backend", help="cpu, opencl; repeat it. Default: both.", show_default=False)
]
MemoryOption = Annotated[
    str | None,
    typer.Option(help="What a step may take, e.g. 2.8GB. Default: what is free on the device.", show_default=False),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write it all, with plots, as one HTML file.", dir_okay=False)
]


def device(
    here: HereOption = False,
    part: PartOption = None,
    model: ModelOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer networks, shorter looks: about a minute on the CPU.")
    ] = False,
    thermal: Annotated[float, typer.Option(help="Then train for so many minutes, and watch heat.", min=0)] = 0.0,
    widths: WidthsOption = None,
    depths: DepthsOption = None,
    backend: BackendOption = None,
    batch: Annotated[int, typer.Option(help="Images a step; fewer where a step would take seconds.")] = 128,
    threads: Annotated[int, typer.Option(help="0: one for each big core.")] = 0,
    memory: MemoryOption = None,
    report: ReportOption = None,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Study what one device can do: networks, width and depth, operations, power, an application beside it, heat."""
    import time
    from importlib.metadata import version

    from orchestrator.device_study.result import Study
    from orchestrator.view.device_study import study_progress
    from phone_agent.contract.device_study import BACKENDS, MODELS, PARTS, StudyRequest
    from phone_agent.contract.sizes import parse_bytes

    if here and limit:
        raise UsageError("--here is this computer, --limit are phones", remedy="leave one of them out")
    with engine_errors():
        request = StudyRequest(
            parts=tuple(PARTS if part is None else part),
            models=tuple(model or MODELS),
            widths=_numbers("--widths", widths or (QUICK_WIDTHS if quick else "64,128,256,512")),
            depths=_numbers("--depths", depths or (QUICK_DEPTHS if quick else "1,2,4,8")),
            backends=tuple(backend or BACKENDS),
            batch=batch,
            threads=threads,
            memory_bytes=None if memory is None else parse_bytes(memory),
            quick=quick,
            thermal_minutes=thermal,
        )
        request.check()
    _check_report(report)
    with study_progress() as view:
        devices = _devices(request, view.show, inventory, limit, here=here)
    study = Study(request, tuple(devices), time.time(), version("clusterctl"))
    _tell(study, report, as_json)
    if not study.ok:
        raise typer.Exit(EXIT_FAILED)


def _tell(study: Study, report: Path | None, as_json: bool) -> None:
    from orchestrator.device_study.findings import findings
    from orchestrator.device_study.result import as_document
    from orchestrator.view.console import note, print_json
    from orchestrator.view.device_study import print_study

    if report is not None:
        from orchestrator.device_study.report.page import page

        report.write_text(page(study), encoding="utf-8")
        note(f"written: {report}")
    if as_json:
        print_json(as_document(study, [findings(each) for each in study.devices]))
    else:
        print_study(study)


def _devices(
    request: StudyRequest, on_row: OnRow, inventory: Path | None, limit: str | None, *, here: bool
) -> list[DeviceStudy]:
    from orchestrator.device_study.collect import study_here, study_phones

    if here:
        return [study_here(request, on_row)]
    from orchestrator.cli.session import open_session

    session = open_session(inventory, limit)
    with session.fleet() as fleet:
        return list(study_phones(session.cluster, fleet, request, on_row))


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    """Of '64,512' or '1-8'."""
    compact = text.replace(" ", "")
    if not _NUMBERS.fullmatch(compact):
        raise UsageError(f"{flag}: '{text}' is not a list of numbers", remedy="write it like 64,512 or 1-8")
    found: list[int] = []
    for each in compact.split(","):
        first, _, last = each.partition("-")
        found.extend(range(int(first), int(last or first) + 1)[: _MOST_NUMBERS + 1])
    if not 1 <= len(found) <= _MOST_NUMBERS:
        raise UsageError(f"{flag}: '{text}' are {len(found)} numbers; 1 to {_MOST_NUMBERS} can be")
    return tuple(dict.fromkeys(found))


def _check_report(report: Path | None) -> None:
    """Minutes are not spent on a file that cannot be written."""
    if report is None:
        return
    folder = report.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"--report {report}: {folder} is not a folder that can be written")
