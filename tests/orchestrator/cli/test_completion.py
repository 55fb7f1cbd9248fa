"""Shell completion through its protocol: the command line in the environment, words on stdout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phone_agent.contract.choices import WIRES

RACK = """\
cluster: c
network: {subnet: 10.77.0.0/16}
switches:
  left: {ports: 8, phones: [{ports: 1-2, name: "a{port}", address: "10.77.1.{port}"}]}
  right: {ports: 8, uplink: {port: 8, to: left}, phones: [{ports: 1-2, name: "b{port}", address: "10.77.2.{port}"}]}
"""


@pytest.fixture
def rack(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text(RACK, encoding="utf-8")
    return path


def completed(line: str, directory: Path, protocol: str = "bash") -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CLUSTERCTL_")}
    asked = {
        "_CLUSTERCTL_COMPLETE": f"complete_{protocol}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "CLUSTERCTL_STATE": str(directory / "state"),
    }
    argv = [str(Path(sys.executable).with_name("clusterctl"))]
    ended = subprocess.run(argv, cwd=directory, env=environment | asked, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_limit_completes_switches_phones_and_keywords(rack: Path) -> None:
    names = ["left", "right", "a1", "a2", "b1", "b2", "@all", "@failed"]
    assert completed("clusterctl inventory show --limit ", rack.parent) == names


def test_limit_completes_the_start_of_a_name(rack: Path) -> None:
    assert completed("clusterctl inventory hostfile -l b", rack.parent) == ["b1", "b2"]


def test_limit_completes_the_last_term(rack: Path) -> None:
    assert completed("clusterctl inventory show --limit left,!a", rack.parent) == ["left,!a1", "left,!a2"]


def test_limit_uses_the_inventory_on_the_command_line(rack: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert completed(f"clusterctl inventory show -i {rack} --limit r", elsewhere) == ["right"]


def test_zsh_shows_the_address_of_a_phone(rack: Path) -> None:
    answer = " ".join(completed("clusterctl inventory show --limit a2", rack.parent, protocol="zsh"))
    assert "a2" in answer
    assert "10.77.1.2" in answer


@pytest.mark.parametrize("content", [None, "cluster: ["])
def test_no_completion_without_a_valid_inventory(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / "inventory.yaml").write_text(content, encoding="utf-8")
    assert completed("clusterctl inventory show --limit s", tmp_path) == []


def test_models_and_backends_are_completed(tmp_path: Path) -> None:
    assert completed("clusterctl launch --model resnet1", tmp_path) == ["resnet101", "resnet152"]
    assert completed("clusterctl launch --backend ", tmp_path) == ["auto", "cpu", "opencl", "hybrid", "reference"]


def test_choices_of_launch(tmp_path: Path) -> None:
    assert completed("clusterctl launch --wire ", tmp_path) == list(WIRES)
    assert completed("clusterctl launch --optimizer l", tmp_path) == ["lars", "lamb"]
    assert completed("clusterctl launch --recipe cifar10", tmp_path) == ["cifar10", "cifar10-lars"]
