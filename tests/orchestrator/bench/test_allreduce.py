"""`clusterctl bench allreduce`: every algorithm over real phones, and invalid flags."""

from __future__ import annotations

import json

import pytest

from orchestrator.bench.allreduce import ALGORITHMS, WIRES, AllreduceRequest
from orchestrator.errors import UsageError
from phone_agent.comm import factory, wire
from tests.labs import TestLab

FLAGS = [
    ("--mb", "2", "--algorithm", "hierarchical", "--wire", "int8"),
    ("--mb", "2", "--algorithm", "hierarchical", "--group-size", "1"),
    ("--mb", "2", "--algorithm", "ring", "--wire", "fp16"),
    ("--mb", "2", "--algorithm", "chunkwise"),
    ("--model", "squeezenet_v1_1", "--algorithm", "chunkwise"),
]


@pytest.mark.lab
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_sums_are_correct_on_virtual_phones(provisioned_lab4: TestLab, flags: tuple[str, ...]) -> None:
    done = provisioned_lab4.clusterctl("bench", "allreduce", *flags, "--repeats", "1", "--json")
    found = json.loads(done.stdout)
    assert found["correct"] is True
    assert found["bytes"] == (2_000_000 if "--mb" in flags else 4 * 1_235_496)
    assert found["line_rate_fraction"] == pytest.approx(found["limit_seconds"] / found["seconds"])
    assert found["sent_bytes"] * 8e-9 >= found["limit_seconds"] * 0.99


def test_host_and_agent_offer_the_same_choices() -> None:
    assert tuple(factory.FACTORIES) == ALGORITHMS
    assert tuple(wire.WIRE_FORMATS) == WIRES


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (AllreduceRequest(1.0, "star"), "unknown value 'star'"),
        (AllreduceRequest(1.0, wire="fp8"), "unknown value 'fp8'"),
        (AllreduceRequest(1.0, "mpi", "fp16"), "mpi sends fp32 only"),
        (AllreduceRequest(1.0, "ring", group=2), "ring has no groups"),
        (AllreduceRequest(None, model="resnet999"), "unknown model 'resnet999'"),
    ],
)
def test_invalid_flags_are_rejected(request_: AllreduceRequest, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        request_.check()
