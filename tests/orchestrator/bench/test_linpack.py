"""`clusterctl bench linpack`: on virtual phones, and invalid flags."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from orchestrator.bench import linpack
from orchestrator.bench.linpack import LinpackPlan, LinpackRequest, plan_linpack
from orchestrator.cli.app import app
from orchestrator.errors import PhoneError, UsageError
from orchestrator.view import bench as view
from phone_agent.contract.decode import DecodeError, decode
from phone_agent.contract.replies import LinpackReport
from phone_agent.linpack.matrix import required_bytes
from tests.labs import TestLab
from tests.orchestrator.launch.samples import phones

PHONES = phones(4, switches=2)
FREE = dict.fromkeys((each.name for each in PHONES), 2_000_000_000)


def planned(**flags: object) -> LinpackPlan:
    return plan_linpack(LinpackRequest(**flags), PHONES, FREE)  # type: ignore[arg-type]


@pytest.mark.lab
def test_linpack_passes_on_virtual_phones(provisioned_lab4: TestLab) -> None:
    flags = ("--n", "300", "--nb", "32", "--grid", "2x2", "--threads", "1")
    done = provisioned_lab4.clusterctl("bench", "linpack", *flags, "--json")
    found = json.loads(done.stdout)
    assert found["passed"] is True
    assert found["residual"] < found["residual_limit"] == 16
    assert (found["n"], found["nb"], found["grid"]) == (300, 32, "2x2")
    assert [each["phone"] for each in found["phones"]] == ["p1-01", "p1-02", "p2-01", "p2-02"]
    assert found["gflops"] == pytest.approx(sum(each["gflops"] for each in found["phones"]))
    for each in found["phones"]:
        assert each["peak_fraction"] == pytest.approx(each["gflops"] / each["peak_gflops"])
    alone = provisioned_lab4.clusterctl("bench", "linpack", "--n", "100", "--limit", "p2-02")
    assert "grid 1x1, 1 phone" in alone.stdout
    assert "must be below 16: passed" in alone.stdout
    refused = provisioned_lab4.clusterctl("bench", "linpack", "--n", "5000000", check=False)
    assert refused.returncode == 2
    assert "the largest n that fits is" in " ".join(refused.stderr.split())


def test_size_from_flags_or_free_memory() -> None:
    assert (planned().system.n, str(planned().system.grid)) == (4096, "2x2")
    assert planned(n=1000, grid="1x4").system.shape(0, 0) == (1000, 256)
    filled = planned(memory_fraction=0.8)
    assert 0.79 < required_bytes(filled.system.n, 128, filled.system.grid) / 2e9 <= 0.8
    uneven = {**FREE, "p2-02": 1_000_000_000}
    assert plan_linpack(LinpackRequest(memory_fraction=0.8), PHONES, uneven).system.n < filled.system.n
    virtual = plan_linpack(LinpackRequest(memory_fraction=0.8), PHONES, FREE, shared=True)
    assert required_bytes(virtual.system.n, 128, virtual.system.grid) <= 0.8 * 2e9 / 4
    assert plan_linpack(LinpackRequest(n=100_000), PHONES, {}).system.n == 100_000  # checked on the phones


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (LinpackRequest(n=100, memory_fraction=0.5), "--n and --memory both"),
        (LinpackRequest(n=0), "must be at least 1"),
        (LinpackRequest(memory_fraction=80), "between 0 and 1"),
        (LinpackRequest(block=0), "--nb 0: must be 1 to 1024"),
        (LinpackRequest(threads=65), "1 to 64"),
    ],
)
def test_invalid_flags_are_rejected(request_: LinpackRequest, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        request_.check()


def test_a_plan_that_does_not_fit_is_rejected() -> None:
    with pytest.raises(UsageError, match="a 2x3 grid needs 6 phones, but there are 4; possible grids: 1x4, 2x2, 4x1"):
        planned(grid="2x3")
    with pytest.raises(UsageError, match="'big' is not a grid"):
        planned(grid="big")
    with pytest.raises(UsageError, match=r"p2-02 has 1\.00 GB free; the largest n that fits is \d+"):
        plan_linpack(LinpackRequest(n=100_000), PHONES, {**FREE, "p2-02": 1_000_000_000})
    with pytest.raises(UsageError, match="no phone reports its free memory"):
        plan_linpack(LinpackRequest(memory_fraction=0.5), PHONES, {})
    with pytest.raises(UsageError, match="is too small"):
        planned(memory_fraction=0.01)


def test_a_wrong_grid_is_rejected_before_any_phone_is_contacted() -> None:
    done = CliRunner().invoke(app, ["bench", "linpack", "-i", "inventory.yaml", "--limit", "sw1:1-2", "--grid", "3x3"])
    assert isinstance(done.exception, UsageError)
    assert "needs 9 phones, but there are 2" in str(done.exception)


REPORT = {
    "seconds": 2.0,
    "residual": 0.004,
    "limit": 16.0,
    "passed": True,
    "threads": 4,
    "isa": "neon",
    "phones": [{"peak_gflops": 40.0, "update_gflops": 20.0, "seconds": {"panel": 0.5, "update": 1.5}}] * 4,
}


def test_a_report_is_parsed_and_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(n=3000)
    result = linpack._result(plan, PHONES, decode(LinpackReport, REPORT))
    document = view.linpack_document(result)
    assert document["gflops"] == pytest.approx((2 / 3 * 3000**3 + 1.5 * 3000**2) / 2e9)
    assert document["phones"][1]["peak_fraction"] == pytest.approx(document["gflops"] / 4 / 40)
    console = Console(record=True, width=120)
    monkeypatch.setattr(view, "out", console)
    view.print_linpack(result)
    view.print_linpack(replace(result, passed=False))
    shown = console.export_text()
    assert "n 3000, nb 128, grid 2x2, 4 phones  9.01 Gflop/s  2.00 s" in shown
    assert "must be below 16: passed" in shown
    assert "must be below 16: FAILED" in shown


def test_only_a_small_residual_passes() -> None:
    assert not linpack._result(planned(n=100), PHONES, decode(LinpackReport, {**REPORT, "residual": 17.0})).passed


@pytest.mark.parametrize("change", [{"residual": float("nan")}, {"passed": "yes"}, {"seconds": 0}])
def test_implausible_reports_are_rejected(change: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        decode(LinpackReport, {**REPORT, **change})


def test_an_invalid_report_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linpack, "run_mpi_job", lambda *_: decode(LinpackReport, {**REPORT, "phones": []}))
    with pytest.raises(PhoneError, match=f"invalid reply of {PHONES[0].name} to linpack: phones: 0 instead of 4"):
        linpack.bench_linpack(None, None, PHONES, planned(n=100))  # type: ignore[arg-type]
