"""Every table fits 80 and 120 columns, and shows names of phones, models and runs in full."""

from __future__ import annotations

import ast
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console, Group, RenderableType

from orchestrator.bench.linpack import LinpackPhoneResult
from orchestrator.bootstrap.report import PhoneBootstrapReport, Waiting
from orchestrator.chaos.evaluate import CheckResult
from orchestrator.chaos.report import CampaignReport
from orchestrator.data.store import StoredDataset
from orchestrator.fleet.host_keys import HostKey, HostKeys
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.examination import run_checks
from orchestrator.health.phone_health import evaluate_health
from orchestrator.health.report import DoctorReport
from orchestrator.health.vitals import Vitals, parse_vitals
from orchestrator.inference.evaluate import Prediction
from orchestrator.inventory import load
from orchestrator.logs.trace import StepBreakdown
from orchestrator.paths import ClusterState
from orchestrator.plan.forecast import published
from orchestrator.plan.forecast.forecast import Forecast, uniform_rack
from orchestrator.provision.engine import StageStarted, StepResult, StepStatus
from orchestrator.provision.report import PhoneProvisionReport
from orchestrator.records.events import Progress
from orchestrator.records.record import RunRecord, StoredRun
from orchestrator.selftest.assumptions import all_assumptions
from orchestrator.selftest.report import AssumptionResult
from orchestrator.selftest.report import PhoneReport as SelftestedPhone
from orchestrator.tune.device_kinds import DeviceKind
from orchestrator.tune.measure import KindResult
from orchestrator.view import (
    bench,
    bootstrap,
    chaos,
    data,
    device_study,
    doctor,
    forecast,
    hosts,
    inference,
    lab,
    launch_plan,
    logs,
    models,
    outcomes,
    provision,
    runs,
    selftest,
    status,
    tune,
)
from orchestrator.view import table as table_module
from orchestrator.view.rack_diagram import Racks
from orchestrator.view.run_live import render_run
from orchestrator.view.table import Column, FitTable, fact_table
from phone_agent.api.measure import KernelResult, OperationTime
from phone_agent.comm.autotune import CollectiveConfig
from phone_agent.contract.assumptions import Status as CheckStatus
from phone_agent.contract.dataset_manifest import DatasetManifest
from phone_agent.contract.replies import TuneRow
from phone_agent.models import MODELS, build
from phone_agent.models.overview import all_overviews
from phone_agent.nn.summary import blocks
from tests.orchestrator.chaos.samples import injection_outcome, run_outcome
from tests.orchestrator.device_study.samples import study
from tests.orchestrator.health.samples import with_facts
from tests.orchestrator.launch.samples import phones, spec, telemetry

WIDTHS = (80, 120)
ROOT = Path(__file__).parents[3]
RUN_ID = "20260131-120000-inception_resnet_v2-00aa"
MODEL = "inception_v3"
CAUSE = "the package repository answered 503 Service Unavailable three times within two minutes of trying, then nothing"
REMEDY = "clusterctl provision --limit sw1:1-46,sw2:1-46,sw3:1-46"
RACK = phones(138, 3)
FEW = RACK[:4]
FAILED = StepResult("packages", StepStatus.FAILED, 5.0, error=CAUSE, remedy=REMEDY)


class Case(NamedTuple):
    table: RenderableType
    names: tuple[str, ...]  # must be readable in full


def bootstrapping() -> Case:
    progress = bootstrap.BootstrapProgress(None)
    progress(StageStarted("bootstrap", FEW))
    progress(Waiting(FEW[0], CAUSE))
    return Case(progress.render(), tuple(phone.name for phone in FEW))


def bootstrap_failures() -> Case:
    failed = [PhoneBootstrapReport(phone, "R58M123ABCD", "R58M123ABCD", steps=(FAILED,)) for phone in FEW]
    return Case(bootstrap.render_failures(failed), tuple(phone.name for phone in FEW))


def provision_failures() -> Case:
    failed = [PhoneProvisionReport(phone, (FAILED,)) for phone in FEW]
    return Case(provision.render_failures(failed), tuple(phone.name for phone in FEW))


def chaos_report() -> CampaignReport:
    report = CampaignReport(seed=3)
    faults = tuple(injection_outcome((name, "p2-01"), seconds=1234.5) for name in ("rank killed", "throttling"))
    report.add(run_outcome(None, injections=faults), CheckResult((), bitwise=False, difference=1e-7))
    return report


def datasets() -> Case:
    names = ("imagenet_subset_of_one_hundred_classes", "cifar10")
    origin: dict[str, object] = {"path": "/home/somebody/datasets/" + "deep/" * 20}
    found = [
        StoredDataset(
            Path("/data"), DatasetManifest(name, "folder", (224, 224, 3), ("a",) * 1000, (0.5,), (0.2,), (), ()), origin
        )
        for name in names
    ]
    return Case(data.render_datasets(found), names)


def device_tables() -> Case:
    tables = [table for device in study().devices for table in device_study.render_tables(device)]
    return Case(Group(*tables), ("mobilenet_reduced", "resnet_reduced"))


def problems() -> Case:
    seen = [replace(with_facts(clock_ahead_s=90.0, disk_mb=1), phone=phone) for phone in FEW]
    report = DoctorReport(FEW, tuple(run_checks(seen, ALL_CHECKS)), 3.0)
    return Case(doctor.render_problems(report), ("disk", "sw1:1-4"))


def forecasts() -> Case:
    choice = CollectiveConfig("hierarchical", "fp16", 4_000_000, group=4)
    found = [Forecast(name, 223_000_000, 128, 12.34, 3.21, 15.55, 113_600.0, choice, 64, 256) for name in MODELS]
    rack = uniform_rack(published.PHONES, 3, "1gbit", "1gbit")
    return Case(forecast.render_forecasts(rack, found), tuple(MODELS))


def pinned_keys() -> Case:
    keys = HostKeys(Path("/nonexistent/known_hosts"))
    key = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIJ" + "x" * 42)
    pinned = [replace(phone, host_key=f"{key.kind} {key.blob}") for phone in FEW]
    return Case(hosts.render_pinned_keys(pinned, keys), tuple(phone.name for phone in FEW))


def predictions() -> Case:
    images = [Path("/home/somebody/pictures") / ("long-" * 12 + "name.jpg"), Path("cat.jpg")]
    found = [[Prediction(1, "tabby, tabby cat, with a long list of synonyms", 0.9), Prediction(2, "tiger", 0.1)]] * 2
    return Case(inference.render_predictions(images, found), ("cat.jpg", "tiger"))


def lab_phones() -> Case:
    found = [
        {"name": phone.name, "switch": phone.switch, "port": phone.port, "address": str(phone.address)}
        | {"user": "u0_a123456", "up": True, "sshd": False}
        for phone in FEW
    ]
    return Case(lab.render_phones(found), tuple(phone.name for phone in FEW))


def linpack_phones() -> Case:
    seconds = dict.fromkeys(("panel", "broadcast", "swap", "solve", "update", "check", "wait"), 1234.56)
    return Case(
        bench.render_linpack_phones([LinpackPhoneResult(phone, 12.3, 45.6, 23.4, seconds) for phone in FEW]),
        tuple(phone.name for phone in FEW),
    )


def block_table() -> Case:
    return Case(models.render_blocks(blocks(build(MODEL))), ("fc",))


def failures() -> Case:
    failed = [
        Outcome[int](phone, Status.UNREACHABLE, 0.1, phase=Phase.BANNER, error=f"{CAUSE} {index}", remedy=REMEDY)
        for index, phone in enumerate(FEW)
    ]
    alike = [replace(failed[0], phone=phone) for phone in RACK[::2]]
    return Case(
        outcomes.render_failures([*([outcome] for outcome in failed), alike]), tuple(phone.name for phone in FEW)
    )


def run_list() -> Case:
    record = RunRecord(
        RUN_ID, MODEL, "p1-01", tuple(phone.name for phone in RACK), 1_000_000, 0.0,
        state="interrupted", step=123_456, loss=6.9078, images_per_s=123_456.0, ended=123_456.0,
    )  # fmt: skip
    listed = [StoredRun(ClusterState(cluster), record) for cluster in ("lab", "rack-1")]
    return Case(runs.render_runs(listed, {RUN_ID}), (RUN_ID, "rack-1"))


def checklist() -> Case:
    made = selftest.Checklist(RACK[:12], None)
    for assumption in all_assumptions(12):
        made.show(RACK[0], AssumptionResult(assumption, CheckStatus.OK, ""))
    return Case(made.render(), ("p1-01", "session"))


def results() -> Case:
    found = tuple(AssumptionResult(assumption, CheckStatus.FAILED, CAUSE) for assumption in all_assumptions(2))
    report = SelftestedPhone(FEW[0], virtual=False, results=found)
    return Case(selftest.render_results(report), tuple(result.assumption.name for result in found))


def health(count: int, *, off: bool = False) -> Any:
    text = telemetry(run={"id": RUN_ID, "state": "running", "step": 123_456})
    vitals = parse_vitals(text, "", (1000.0, 1000.0))
    found = [Outcome(phone, Status.OK, 0.1, vitals) for phone in RACK[:count]]
    bad = [Outcome[Vitals](phone, Status.UNREACHABLE, 5.0, phase=Phase.TCP, error=CAUSE) for phone in RACK[:count:2]]
    return evaluate_health(Outcomes(tuple(bad if off else found)))


def shares() -> Case:
    found = [StepBreakdown(rank, phone.name, 10_000, 123.4567, 100.0, 23.4567, 0.19) for rank, phone in enumerate(FEW)]
    return Case(logs.render_breakdowns(found), tuple(phone.name for phone in FEW))


def measurements() -> Case:
    rows = [
        TuneRow("cpu", "8 threads, little cores as well", step_s=0.1234, images_per_s=129.7),
        TuneRow("opencl", "tiles " + "work_group 64, " * 8, error=CAUSE),
    ]
    kind = DeviceKind("SM-G975F Exynos 9820", "abc", "c1", "Mali-G76 r0p0, OpenCL 2.0 v1.r26p0-01eac0.aadb8f2c7d8d9eb5")
    return Case(tune.render_measurements(KindResult(kind, RACK, FEW[0], None), rows), ("p1-01", "opencl"))


def ranks() -> Case:
    return Case(launch_plan.render_ranks(replace(spec(138, switches=3), model=MODEL)), ("p1-01", "p3-46"))


CASES: dict[str, Callable[[], Case]] = {
    "bench.render_breakdown": lambda: Case(
        bench.render_breakdown([OperationTime("conv_backward_weights", "backward", 0.123, 0.456, 123.4, 56.7)]),
        ("conv_backward_weights",),
    ),
    "bench.render_kernels": lambda: Case(
        bench.render_kernels(
            [KernelResult("f32-dwconv-backward-weights", "128x112x112x64 3x3 stride 2", 0.012345, 123.4, 0.56, 7.8)]
        ),
        ("f32-dwconv-backward-weights",),
    ),
    "bootstrap.render": bootstrapping,
    "bootstrap.render_failures": bootstrap_failures,
    "chaos.render_invariants": lambda: Case(chaos.render_invariants(chaos_report()), ("no run hangs or fails",)),
    "chaos.render_kinds": lambda: Case(chaos.render_kinds(chaos_report()), ("rank killed",)),
    "data.render_datasets": datasets,
    "device_study._cases": device_tables,
    "device_study._interference": device_tables,
    "device_study._loads": device_tables,
    "device_study._operations": device_tables,
    "device_study._published": device_tables,
    "device_study._thermal": device_tables,
    "doctor.render_problems": problems,
    "forecast.render_forecasts": forecasts,
    "hosts.render_pinned_keys": pinned_keys,
    "inference.render_predictions": predictions,
    "lab.render_phones": lab_phones,
    "launch_plan.render_ranks": ranks,
    "bench.render_linpack_phones": linpack_phones,
    "models.print_sheet": lambda: Case(fact_table([("parameters", "55,843,464 " * 20)]), ("parameters",)),
    "models.render_blocks": block_table,
    "models.render_overviews": lambda: Case(models.render_overviews(all_overviews()), tuple(MODELS)),
    "outcomes.render_failures": failures,
    "provision.render_failures": provision_failures,
    "rack_diagram": lambda: Case(_diagram(), ("p1-01", "p3-46")),
    "run_live": lambda: Case(render_run(replace(spec(4), run_id=RUN_ID), Progress(1_000_000)), (RUN_ID,)),
    "runs.render_runs": run_list,
    "selftest.render": checklist,
    "selftest.render_results": results,
    "status._noteworthy": lambda: Case(status.render_status("rack", health(40, off=True), (80, 45)), ("sw1:1",)),
    "status.render_phones": lambda: Case(status.render_phones(health(8)), tuple(phone.name for phone in RACK[:8])),
    "logs.render_breakdowns": shares,
    "tune.render_measurements": measurements,
}


def _diagram() -> Racks:
    cluster = load(ROOT / "inventory.yaml")
    return Racks(cluster, frozenset(cluster))


def rendered(table: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_table_fits_and_shows_names_in_full(case: Callable[[], Case], width: int) -> None:
    table, names = case()
    lines = rendered(table, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert [name for name in names if name not in text] == []


def test_no_table_of_the_view_is_left_out() -> None:
    """Functions that make a table, found in the source."""
    folder = Path(table_module.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and path.stem != "table":
                called = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
                names = {each.id for each in called if isinstance(each, ast.Name)}
                if names & {"FitTable", "fact_table", "Table"}:
                    found.add(f"{path.stem}.{node.name}")
    assert found <= CASES.keys()


def sample() -> FitTable:
    table = FitTable("name", Column("first", priority=1), Column("second", priority=2), Column("prose", wrap=True))
    table.add_row("p1-01", "1" * 10, "2" * 10, "word " * 10)
    return table


def test_the_least_important_column_goes_first() -> None:
    assert rendered(sample(), 60)[0].split() == ["name", "first", "second", "prose"]
    assert rendered(sample(), 50)[0].split() == ["name", "first", "prose"]
    assert rendered(sample(), 40)[0].split() == ["name", "prose"]


def test_without_room_for_the_essential_columns_they_are_folded() -> None:
    lines = rendered(sample(), 12)
    assert max(map(len, lines)) <= 12
    assert "".join(line[:4].strip() for line in lines[1:]).startswith("p1-01")


def test_cells_are_not_parsed_as_markup() -> None:
    table = FitTable("name")
    table.add_row("[bold]x[/]")
    assert "[bold]x[/]" in rendered(table, 80)[1]
