"""What `launch --dry-run` prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.view.launch_plan import print_plan
from phone_agent.contract.schema import CommunicationSpec
from tests.orchestrator.launch.samples import spec
from tests.orchestrator.view.screens import drawn, screen


def test_plan_of_138_phones_takes_a_few_lines() -> None:
    console = screen()
    print_plan(console, spec(138, switches=3), ["mpirun", "-np", "138", "two words"])
    lines = drawn(console)
    assert len(lines) < 12
    assert any("0 .. 45" in line and "sw1:1 .. 46" in line for line in lines)
    assert lines[-1].endswith("'two words'")


@pytest.mark.parametrize(
    ("algorithm", "wire", "words"),
    [
        ("auto", "auto", "allreduce: algorithm chosen by a link probe, fp32 or fp16"),
        ("ring", "auto", "allreduce: ring, fp32 or fp16"),
        ("ring", "int8", "allreduce: ring, int8"),
        ("mpi", "auto", "allreduce: mpi, fp32"),
        ("chunkwise", "auto", "allreduce: chunkwise, fp32"),
    ],
)
def test_plan_shows_algorithm_and_wire_format(algorithm: str, wire: str, words: str) -> None:
    console = screen()
    print_plan(console, replace(spec(), communication=CommunicationSpec(algorithm, wire)), ["mpirun"])
    assert words in drawn(console)
