"""The examination around the checks: neighbors, versions, history, address scan, folded report."""

from __future__ import annotations

import io
import os
import subprocess
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.health.adb_commands import command_lines
from orchestrator.health.address_scan import candidates
from orchestrator.health.checks import ALL_CHECKS
from orchestrator.health.doctor_facts import DoctorFacts, ProbeResult, parse_doctor_facts
from orchestrator.health.examination import (
    load_history,
    most_common_versions,
    ring_neighbors,
    run_checks,
    update_history,
)
from orchestrator.health.observation import Observation
from orchestrator.health.report import DoctorReport
from orchestrator.health.scripts import EXAMINE
from orchestrator.health.session_facts import parse_cores, parse_session_facts, strip_fact_lines
from orchestrator.inventory.model import Cluster, Switch
from orchestrator.view.doctor import print_report
from phone_agent.device.memory import free_disk_mb
from tests.orchestrator.health.samples import FACTS, HEALTHY, SUBNET, phone, with_facts

NOW = (1000.0, 1010.0)


def report(*seen: Observation) -> DoctorReport:
    return DoctorReport(tuple(each.phone for each in seen), tuple(run_checks(seen, ALL_CHECKS)), 3.0)


def shown(found: DoctorReport) -> str:
    page = io.StringIO()
    print_report(Console(file=page, width=200), "rack", found)
    return page.getvalue()


def clock_wrong(port: int, seconds: float = 90.0, serial: str | None = None) -> Observation:
    return replace(with_facts(clock_ahead_s=seconds), phone=phone(port, serial=serial))


def test_each_phone_calls_its_ring_neighbor() -> None:
    ring = [phone(port) for port in (1, 2, 4)]
    assert ring_neighbors(ring) == {ring[0]: ring[1], ring[1]: ring[2], ring[2]: ring[0]}
    assert ring_neighbors(ring[:1]) == {}


def test_the_most_common_version_is_that_of_most_phones() -> None:
    odd = replace(FACTS, packages={"openmpi": "4.1.4-2"})
    assert most_common_versions([FACTS, odd, FACTS])["openmpi"] == "4.1.5-1"


def test_phones_with_the_same_problem_share_a_line() -> None:
    found = report(clock_wrong(1), clock_wrong(2, 91.0), clock_wrong(3, 80.0))
    assert len(found.problems) == 1
    problem = found.problems[0].as_json()
    assert (problem["row"], problem["folded"], problem["remedy_kind"]) == (25, "sw1:1-3", "adb")
    assert [each["evidence"] for each in problem["phones"]][2] == "clock is 80 s ahead"
    assert "sw1:1-3" in shown(found)
    assert "clock is 90 s ahead (and 2 similar)" in shown(found)


def test_adb_commands_contain_the_serial_number() -> None:
    lines = report(clock_wrong(1, serial="R58M1")).problems[0].adb_lines
    assert lines[0] == "adb -s R58M1 shell settings put global ntp_server 10.77.0.1"
    both = tuple(command_lines([phone(1, serial="A"), phone(2, serial="B"), phone(3)], ["shell true"]))
    assert both == ("for serial in A B; do adb -s $serial shell true; done", "adb -s SERIAL shell true")


def test_problems_that_stop_a_run_come_first_and_decide_the_health() -> None:
    found = report(with_facts(thermal="denied", disk_mb=1))
    assert [each.check.name for each in found.problems] == ["disk", "no-temperature"]
    assert not found.healthy
    assert report(with_facts(thermal="denied")).healthy


def test_the_view_ends_with_the_command_to_run_next(capsys: pytest.CaptureFixture[str]) -> None:
    shown(report(with_facts(agent_installed=False)))
    assert "next: clusterctl doctor --fix --limit sw1:1" in capsys.readouterr().err
    shown(report(HEALTHY))
    assert "next: clusterctl launch" in capsys.readouterr().err


def test_history_is_updated_only_for_phones_that_answered(tmp_path: Path) -> None:
    path = tmp_path / "state" / "doctor.json"
    update_history(path, {phone(1): FACTS, phone(2): FACTS}, 100.0)
    update_history(path, {phone(1): replace(FACTS, sshd_supervisor="none")}, 200.0)
    known = load_history(path)
    assert (known["p1-01"].sshd_supervisor, known["p1-01"].when, known["p1-02"].sshd_supervisor) == (
        "none",
        200.0,
        "boot",
    )
    assert known["p1-01"].percentage == 96.0
    path.write_text("[1, 2")
    assert load_history(path) == {}


def test_address_scan_starts_nearby_and_skips_addresses_of_other_phones() -> None:
    phones = (phone(1), phone(2))
    switch = Switch("sw1", 8, phones)
    cluster = Cluster("rack", SUBNET, IPv4Address("10.77.0.1"), "eth0", "1gbit", (switch,), Path("inventory.yaml"))
    addresses = [str(address) for address, _ in candidates(phones[:1], cluster)]
    assert addresses[:2] == ["10.77.1.3", "10.77.1.4"]
    assert "10.77.101.1" in addresses
    assert not {"10.77.1.1", "10.77.1.2", "10.77.0.1"} & set(addresses)
    assert len(addresses) == len(set(addresses)) < 600


def test_the_clock_offset_uses_begin_and_end_of_the_examination() -> None:
    def ahead(begin: float, end: float) -> float:
        return parse_doctor_facts(f"fact\tbegin\t{begin}\nfact\tend\t{end}\n", NOW).clock_ahead_s

    assert ahead(1000.1, 1009.9) == 0.0
    assert ahead(1003.1, 1012.9) == pytest.approx(2.9)
    assert ahead(997.1, 1006.9) == pytest.approx(-2.9)


def test_an_interrupted_examination_is_incomplete() -> None:
    facts = parse_doctor_facts("fact\tbegin\t1000\nfact\tprobe\tpython\t0\tandroid\n", NOW)
    assert not facts.complete
    assert facts.probes["python"] == ProbeResult(0, "android")


def test_fact_lines_are_separated_from_other_output() -> None:
    text = "hello\nfact\tenv\tPATH\t/bin\nagent\n{}\n"
    assert strip_fact_lines(text) == "hello\nagent\n{}\n"
    session = parse_session_facts(text)
    assert session is not None
    assert session.path == "/bin"
    assert parse_session_facts("agent\n{}\n") is None


def test_core_lists_are_parsed() -> None:
    assert parse_cores("0-2,4") == (0, 1, 2, 4)
    assert parse_cores("0-99999999") == ()
    assert len(parse_cores("0-9999")) == 1024


KEYS = st.sampled_from(
    ["env", "probes", "manager", "core", "package", "frequency", "begin", "end", "ssh", "sdk", "battery", "boot_script"]
)


@settings(max_examples=60)
@given(st.lists(st.tuples(KEYS, st.lists(st.text(max_size=12), max_size=6)), max_size=20))
def test_no_output_of_a_phone_raises(lines: list[tuple[str, list[str]]]) -> None:
    text = "\n".join("\t".join(["fact", key, *values]) for key, values in lines)
    facts = parse_doctor_facts(text, NOW)
    seen = replace(HEALTHY, facts=facts)
    assert all(len(found.finding.evidence) <= 300 for found in run_checks([seen], ALL_CHECKS))


def test_a_malformed_battery_is_unknown() -> None:
    assert DoctorFacts(probes={"battery": ProbeResult(0, "[1]")}).battery is None
    assert DoctorFacts(probes={"battery": ProbeResult(0, "{")}).battery is None


def test_free_memory_and_disk_match_the_agent(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 5687420 kB\nMemAvailable:    2734144 kB\n")
    script = EXAMINE.replace("/proc/meminfo", str(tmp_path / "meminfo"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    facts = parse_doctor_facts(done.stdout, NOW)
    assert facts.memory_mb == 2799
    assert facts.disk_mb == pytest.approx(free_disk_mb(tmp_path), rel=0.01)
