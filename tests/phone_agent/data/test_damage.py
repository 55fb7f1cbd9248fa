"""Damaged samples on one phone of a run. Real mpirun, real files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from phone_agent.contract import layout
from phone_agent.contract.dataset_manifest import MANIFEST_FILE, DatasetManifest
from phone_agent.contract.schema import DataSpec, OptimizerSpec
from phone_agent.contract.shards import HEADER_BYTES
from phone_agent.data.sampling import sample_order
from phone_agent.train.checkpoint import newest_intact
from tests.phone_agent.datasets import SHAPE, damage, spec_of, stage
from tests.phone_agent.phones import SYNTHETIC, Phone, events, forget, make_phones, resumed, run_spec, train

STEPS = 12
DATA = layout.dataset_dir("dots")


@pytest.fixture
def phones(tmp_path: Path) -> Iterator[list[Phone]]:
    """In-memory checkpoints outlive an attempt."""
    made = make_phones(tmp_path, 3)
    yield made
    forget(made)


def with_data(phones: list[Phone]) -> DatasetManifest:
    first, *_ = [stage(phone.home / DATA, train=120, test=30, per_shard=120) for phone in phones]
    return first


def damage_sample(phone: Phone, file: str, index: int) -> None:
    damage(phone.home / DATA / file, HEADER_BYTES + index * prod(SHAPE))


def complaint(phone: Phone) -> tuple[str, str]:
    """The fault and the message of the error event. The event of the step before may arrive after it."""
    events = phone.events("run", layout.RANK_EVENTS_FILE)
    (error,) = [event for event in events if event["event"] == "error"]
    return error["fault"], error["message"]


def test_damaged_sample_blames_the_phone_and_others_resume_from_memory(phones: list[Phone]) -> None:
    spec = run_spec((4, 4, 4), steps=STEPS, data=spec_of(with_data(phones)), load_balancing="off")
    sample = int(sample_order(spec, 1).samples_at(7)[0][2])
    damage_sample(phones[1], "train-00000.shard", sample)
    assert train(phones, spec).returncode == 1
    fault, message = complaint(phones[1])
    assert fault == "phone"
    assert message.startswith(f"sample {sample} of {phones[1].home / DATA}/train-00000.shard is damaged: clusterctl ")
    done = max(event["step"] for event in events(phones[0], spec) if event["event"] == "step")
    assert done in {6, 7}, "the eighth step's samples are asked for while the seventh's gradients travel"
    ranks = tuple(replace(rank, rank=place, batch=6) for place, rank in enumerate((spec.ranks[0], spec.ranks[2])))
    others = [phones[0], phones[2]]
    without = resumed(others, replace(spec, ranks=ranks), 1)
    assert train(others, without).returncode == 0
    start, *_, end = events(phones[0], without)
    assert (start["resumed_from"], end["event"]) == ("memory", "done")
    assert start["resumed"] >= done


def no_description(phone: Phone) -> None:
    (phone.home / DATA / MANIFEST_FILE).write_text("{")


def no_samples(phone: Phone) -> None:
    (phone.home / DATA / "train-00000.shard").unlink()


@pytest.mark.parametrize("spoil", [no_description, no_samples])
def test_errors_of_files_on_the_phone_blame_the_phone(phones: list[Phone], spoil: Callable[[Phone], None]) -> None:
    spec = run_spec((4, 4), steps=2, data=spec_of(with_data(phones[:2])))
    spoil(phones[1])
    assert train(phones[:2], spec).returncode == 1
    assert complaint(phones[1])[0] == "phone"


def test_damaged_held_out_sample_does_not_lose_the_checkpoint(phones: list[Phone]) -> None:
    """The phone with the damaged sample writes no checkpoints; the other phones have written theirs before it fails."""
    spec = run_spec((4, 4, 4), steps=STEPS, data=spec_of(with_data(phones)))
    damage_sample(phones[1], "test-00000.shard", 10)
    assert train(phones, spec).returncode == 1
    fault, message = complaint(phones[1])
    assert fault == "phone"
    assert message.startswith("sample 10 of ")
    assert_last_step_is_saved(phones[0], phones[2])


def test_non_finite_scores_do_not_lose_the_checkpoint(phones: list[Phone]) -> None:
    """The only step leaves finite weights that are too large to compute with."""
    held_out: DataSpec = replace(SYNTHETIC, test_samples=30)
    spec = run_spec((4, 4, 4), steps=1, data=held_out, optimizer=OptimizerSpec(learning_rate=1e30))
    done = train(phones, spec)
    assert done.returncode == 1
    assert "the network's scores are not finite: lower the learning rate" in done.stderr, "of whoever fails first"
    assert_last_step_is_saved(phones[0], phones[2], step=1)


def assert_last_step_is_saved(*phones: Phone, step: int = STEPS) -> None:
    for phone in phones:
        newest, damaged = newest_intact(phone.run_dir("run"))
        assert newest is not None
        assert (newest["step"], damaged) == (step, [])
