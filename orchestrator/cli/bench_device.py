"""`clusterctl bench device`: a study of single phones, or of this computer."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.choices import StudyBackend, StudyModel, StudyPart
from orchestrator.cli.help import EXPERT, format_examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED, UsageError, agent_errors

if TYPE_CHECKING:
    from orchestrator.device_study.collect import OnRow
    from orchestrator.device_study.result import DeviceStudy, Study
    from phone_agent.contract.device_study import StudyRequest

QUICK_WIDTHS, QUICK_DEPTHS = "64,512", "1,8"
_NUMBERS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_MAX_NUMBERS = 64

EXAMPLES = format_examples(
    "clusterctl bench device --here --quick",
    "clusterctl bench device --limit p1-01 --report p1-01.html",
    "# only the power measurements, then ten minutes of training to record the temperature",
    "clusterctl bench device --part power --thermal 10",
)

HereOption = Annotated[bool, typer.Option("--here", help="Measure this computer instead of phones.")]
PartOption = Annotated[
    list[StudyPart] | None,
    typer.Option(
        "--part",
        help="What to measure. Repeatable. Default: everything. sweep: models of various widths and depths; "
        "foreground: how much training slows down a foreground app.",
    ),
]
ModelOption = Annotated[
    list[StudyModel] | None, typer.Option("--model", help="Model to measure. Repeatable. Default: all.")
]
WidthsOption = Annotated[
    str | None,
    typer.Option(
        help="With --part sweep: layer widths, such as 64,512. Default: 64,128,256,512.", rich_help_panel=EXPERT
    ),
]
DepthsOption = Annotated[
    str | None,
    typer.Option(help="With --part sweep: layer counts, such as 1-8. Default: 1,2,4,8.", rich_help_panel=EXPERT),
]
BackendOption = Annotated[
    list[StudyBackend] | None, typer.Option("--backend", help="Backend to measure. Repeatable. Default: both.")
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        help="Memory limit for a training step, such as 2.8GB. Default: the device's free memory.",
        rich_help_panel=EXPERT,
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Also write the results with plots to this HTML file.", dir_okay=False)
]


def device(
    here: HereOption = False,
    part: PartOption = None,
    model: ModelOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer, shorter measurements: about a minute with --backend cpu.")
    ] = False,
    thermal: Annotated[
        float, typer.Option(help="Afterwards, train for this many minutes and record the temperature.", min=0)
    ] = 0.0,
    widths: WidthsOption = None,
    depths: DepthsOption = None,
    backend: BackendOption = None,
    batch: Annotated[
        int,
        typer.Option(
            help="Images per step; reduced if a step would exceed its time limit (at most 3 s).", rich_help_panel=EXPERT
        ),
    ] = 128,
    threads: Annotated[int, typer.Option(help="Number of threads. 0: one per big core.", rich_help_panel=EXPERT)] = 0,
    memory: MemoryOption = None,
    report: ReportOption = None,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Benchmark a device in depth.

    Measures models, layer sizes, operations, power draw, the effect on a foreground app, and temperature."""
    import time
    from importlib.metadata import version

    from orchestrator.device_study.result import Study
    from orchestrator.view.device_study import study_progress
    from phone_agent.contract.device_study import BACKENDS, MODELS, PARTS, StudyRequest
    from phone_agent.contract.sizes import parse_bytes

    if here and limit:
        raise UsageError("--here measures this computer, but --limit selects phones", remedy="remove one of them")
    with agent_errors():
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
    _show(study, report, as_json)
    if not study.ok:
        raise typer.Exit(EXIT_FAILED)


def _show(study: Study, report: Path | None, as_json: bool) -> None:
    from orchestrator.device_study.findings import findings
    from orchestrator.device_study.result import as_document
    from orchestrator.view.console import note, print_json
    from orchestrator.view.device_study import print_study

    if report is not None:
        from orchestrator.device_study.report.page import page

        report.write_text(page(study), encoding="utf-8")
        note(f"report written to {report}")
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
    """Parses '64,512' or '1-8'."""
    compact = text.replace(" ", "")
    if not _NUMBERS.fullmatch(compact):
        raise UsageError(f"{flag}: '{text}' is not a list of numbers", remedy="write it like 64,512 or 1-8")
    found: list[int] = []
    for each in compact.split(","):
        first, _, last = each.partition("-")
        found.extend(range(int(first), int(last or first) + 1)[: _MAX_NUMBERS + 1])
    if not 1 <= len(found) <= _MAX_NUMBERS:
        raise UsageError(f"{flag}: '{text}' has {len(found)} numbers; 1 to {_MAX_NUMBERS} are allowed")
    return tuple(dict.fromkeys(found))


def _check_report(report: Path | None) -> None:
    """Checked first, so that minutes of measuring are not lost."""
    if report is None:
        return
    folder = report.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"--report {report}: {folder} is not a writable directory")
