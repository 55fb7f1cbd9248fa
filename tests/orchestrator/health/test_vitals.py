from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phone_agent
from orchestrator.health.vitals import PROBE, Vitals, parse_vitals
from phone_agent.device import memory
from phone_agent.device.system import SystemPaths
from tests.orchestrator.launch.samples import telemetry

NOW = (999.0, 1001.0)


def probe(home: Path, script: str = PROBE) -> Vitals:
    """Run the script as a phone does, in its own home directory."""
    asked = time.time()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(
        ["bash", "-s"], input=script, env=environment, cwd=home, capture_output=True, text=True, timeout=60, check=True
    )
    return parse_vitals(done.stdout, done.stderr, (asked, time.time()))


def test_vitals_of_a_bare_phone(tmp_path: Path) -> None:
    vitals = probe(tmp_path)
    assert not vitals.provisioned
    assert vitals.agent_problem is None
    assert vitals.memory_free_mb
    assert vitals.disk_free_mb is not None
    assert vitals.clock_offset_s == pytest.approx(0.0, abs=0.1)


def test_a_bare_phone_uses_the_units_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 5687420 kB\nMemAvailable:    2734144 kB\n")
    vitals = probe(tmp_path, PROBE.replace("/proc/meminfo", str(tmp_path / "meminfo")))
    assert vitals.memory_free_mb == memory.available_mb(SystemPaths(proc=tmp_path)) == 2799
    assert vitals.disk_free_mb == pytest.approx(memory.free_disk_mb(tmp_path), rel=0.01)


def test_vitals_come_from_the_telemetry_of_the_agent(tmp_path: Path) -> None:
    agent = tmp_path / ".clusterctl/agent/releases/r1"
    agent.mkdir(parents=True)
    (agent / "phone_agent").symlink_to(Path(phone_agent.__file__).parent)
    (tmp_path / ".clusterctl/agent/current").symlink_to("releases/r1")
    vitals = probe(tmp_path)
    assert vitals.provisioned
    assert vitals.run is None
    assert vitals.clock_offset_s == 0.0


def test_the_error_of_a_broken_agent_is_quoted(tmp_path: Path) -> None:
    package = tmp_path / ".clusterctl/agent/current/phone_agent"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("raise SystemExit('no module named \\x1b[31mnumpy')")
    vitals = probe(tmp_path)
    assert not vitals.provisioned
    assert vitals.agent_problem == "no module named \\x1b[31mnumpy"
    assert vitals.memory_free_mb


def test_telemetry_is_parsed() -> None:
    run = {"id": "r", "state": "running", "step": 7}
    vitals = parse_vitals(telemetry(run=run), "", NOW)
    assert (vitals.temperature_c, vitals.frequency_max_mhz, vitals.agent_release) == (41.5, 2841, "0.1.0-abc")
    assert vitals.battery is not None
    assert (vitals.battery.percent, vitals.battery.plugged) == (81, True)
    assert vitals.run is not None
    assert vitals.run.step == 7


@pytest.mark.parametrize(("epoch", "offset"), [(1000.0, 0.0), (1031.0, 30.0), (990.0, -9.0)])
def test_the_clock_offset_allows_for_the_round_trip(epoch: float, offset: float) -> None:
    assert parse_vitals(telemetry(epoch=epoch), "", NOW).clock_offset_s == pytest.approx(offset)


anything: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9) | st.just({})
)


@given(st.text(max_size=200))
def test_no_answer_raises(answer: str) -> None:
    parse_vitals(answer, answer, NOW)
    parse_vitals("bare\n" + answer, answer, NOW)


@given(st.dictionaries(st.sampled_from(sorted(json.loads(telemetry().split("\n", 1)[1]))), anything))
def test_no_value_raises(figures: dict[str, Any]) -> None:
    vitals = parse_vitals(telemetry(**figures), "", NOW)
    assert vitals.temperature_c is None or abs(vitals.temperature_c) < float("inf")
