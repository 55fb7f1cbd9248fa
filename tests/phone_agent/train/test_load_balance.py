"""Load balancing: gradients stay those of the global batch, and every sample is used once per epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.cpu import CpuBackend
from phone_agent.backends.planned_executable import MAX_PLANS
from phone_agent.comm.world import World
from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.errors import BadRequestError
from phone_agent.contract.schema import DataSpec, RunSpec
from phone_agent.data.sampling import replicated_order
from phone_agent.device.condition import Cause, Condition, Level
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.train.builder import TrainerBuilder
from phone_agent.train.events import STATUS_EVERY_S, ConditionEvents, EventLog
from phone_agent.train.load_balance import LoadBalancer
from phone_agent.train.rank_steps import Conditions, RankStep, RankSteps
from tests.phone_agent.phones import SYNTHETIC, run_spec
from tests.phone_agent.thread_world import on_ranks
from tests.phone_agent.threaded_training import Setting, alone, together
from tests.phone_agent.train.test_training import TOLERANCE, losses_of_one_process

LATER = {2: (9, 3), 4: (0, 12), 5: (12, 0), 6: (1, 11)}
CUTS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)


@pytest.mark.parametrize("overlapping", [True, False])
@pytest.mark.parametrize("name", ["squeezenet_v1_1", "mobilenet_v1"])
def test_changing_batches_match_one_process(name: str, *, overlapping: bool) -> None:
    """Also with batch normalization and dropout: only the rank that computes an image changes."""
    graph = models.build(name, 10, (32, 32, 3), 0.125)
    setting = Setting(graph, (6, 6), largest=5, steps=7, later=LATER)
    wanted = alone(setting)
    for result in together(setting, overlapping=overlapping):
        np.testing.assert_allclose(result.losses, wanted.losses, rtol=1e-12)
        np.testing.assert_array_equal(result.state.values, wanted.state.values)


@pytest.mark.parametrize("name", BACKENDS)
def test_changing_batches_do_not_change_the_result(name: str) -> None:
    graph = models.build("lenet", 10, SYNTHETIC.shape)
    undisturbed = Setting(graph, (6, 6), steps=8, backend=name)
    wanted, found = (together(each)[0] for each in (undisturbed, replace(undisturbed, later=LATER)))
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=2e-6)
    np.testing.assert_allclose(found.state.values, wanted.state.values, atol=2e-6)


@given(samples=st.integers(1, 40), steps=st.lists(CUTS, min_size=10, max_size=10))
def test_every_sample_is_used_once_per_epoch(samples: int, steps: list[list[int]]) -> None:
    order, used = replicated_order(samples, (3, 3, 3), 0, seed=1), []
    for step, cuts in enumerate(steps):
        for first, end in pairwise((0, *cuts, 9)):
            used += order.samples_at(step, slice(first, end))[0].tolist()
    for epoch in range(len(used) // samples):
        assert sorted(used[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


def slow_from(step: int, times: float, steps: RankSteps) -> RankSteps:
    """A tenth of a second per image; the second phone slows down at step 8."""
    steps.compute_s[:] = 0.1 * steps.images * [1.0, times if step >= 8 else 1.0]
    steps.comm_s[:] = 0
    return steps


def train(directory: Path, spec: RunSpec, times: float) -> tuple[list[float], list[tuple[int, tuple[int, ...]]]]:
    """Losses, and the batches with the step they took effect; the same on all ranks."""

    def one(world: World) -> tuple[list[float], list[tuple[int, tuple[int, ...]]]]:
        losses: list[float] = []
        changes: list[tuple[int, tuple[int, ...]]] = []

        def tell(step: int, own: RankStep) -> None:
            steps = RankSteps(world.allgather(own.to_row()))
            losses.append(float((steps.loss * steps.images).sum()) / spec.global_batch)
            change = trainer.load_balancer.observe(step, slow_from(step, times, steps))
            if change is not None:
                changes.append((change.step, change.batches))

        trainer = TrainerBuilder(directory, spec, 1, world, tell, pytest.fail).build()
        assert list(trainer.loop.run(1, spec.steps)) == list(range(1, spec.steps + 1))
        trainer.communication.overlap.drain()
        trainer.close()
        return losses, changes

    first, *others = on_ranks(len(spec.ranks), one)
    assert others == [first] * len(others)
    return first


def test_slowing_phone_gets_fewer_images_and_losses_stay_the_same(tmp_path: Path) -> None:
    """Each step is a block: the third slow one triggers a change, two steps later. Micro-batches: up to 12 images."""
    spec = run_spec((12, 12), steps=18)
    losses, changes = train(tmp_path, spec, times=3.0)
    assert changes == [(12, (18, 6))]
    np.testing.assert_allclose(losses, losses_of_one_process(spec), rtol=TOLERANCE)


@pytest.mark.parametrize("how", [{"load_balancing": "off"}, {"local_steps": 4}])
def test_batches_stay_if_balancing_is_off_or_impossible(tmp_path: Path, how: dict[str, Any]) -> None:
    assert train(tmp_path, run_spec((12, 12), steps=14, **how), times=3.0)[1] == []


def rows_of(*conditions: Condition, images: Sequence[int] = (8, 8), compute_s: Sequence[float] = (1, 1)) -> RankSteps:
    shown = zip(conditions, images, compute_s, strict=True)
    return RankSteps.of([RankStep(1.0, seconds, 0.0, condition, images=count) for condition, count, seconds in shown])


HOT = Condition(temperature_c=90.0, level=Level.REDUCE, cause=Cause.PROCESSOR, work_fraction=0.5)
PAUSED = Condition(battery_c=45.2, level=Level.PAUSE, cause=Cause.BATTERY, work_fraction=0.0)
THROTTLED = Condition(frequency_mhz=940, frequency_max_mhz=2841)


def test_rebalance_names_the_phone_and_the_reason() -> None:
    balancer = LoadBalancer(run_spec((8, 8)), 1, 8)
    hot = balancer.observe(3, rows_of(Condition(), HOT))
    assert hot is not None
    assert (hot.step, hot.batches) == (5, (11, 5))
    assert hot.reason == "p1-02 (sw1:2) 8 -> 5 images per step: processor at 90 °C"
    assert (balancer.batches(4), balancer.batches(5)) == ((8, 8), (11, 5))
    assert balancer.micro_batches(4) == [slice(8, 16)]
    assert balancer.micro_batches(5) == [slice(11, 16)]
    rest = balancer.observe(5, rows_of(Condition(), PAUSED, images=(11, 5)))
    assert rest is not None
    assert rest.reason == "p1-02 (sw1:2) 5 -> 0 images per step: battery at 45 °C"
    assert balancer.micro_batches(7) == []
    assert not balancer.pauses_before(7), "the other phone computes its images"
    back = balancer.observe(7, rows_of(Condition(), Condition(work_fraction=0.5), images=(16, 0)))
    assert back is not None
    assert (
        back.reason
        == "p1-02 (sw1:2) 0 -> 5 images per step: recovering, so its share of the work is restored gradually"
    )


def test_no_phone_gets_a_single_image_if_batch_normalization_needs_two() -> None:
    spec = run_spec((2, 2, 2))
    balancer = LoadBalancer(replace(spec, compute=replace(spec.compute, min_micro_batch=2)), 1, 2)
    rest = balancer.observe(3, rows_of(PAUSED, Condition(), HOT, images=(2, 2, 2), compute_s=(1, 1, 9)))
    assert rest is not None
    assert rest.batches == (0, 4, 2)
    assert balancer.micro_batches(5) == [slice(0, 2), slice(2, 4)]


def test_throttled_clock_is_named() -> None:
    balancer = LoadBalancer(run_spec((8, 8)), 0, 8)
    changes = [balancer.observe(step, rows_of(Condition(), THROTTLED, compute_s=(1, 3))) for step in range(1, 6)]
    slower = "it takes 3.0 times as long per image as the others, clock at 33% of maximum"
    assert [change.reason for change in changes if change] == [f"p1-02 (sw1:2) 8 -> 4 images per step: {slower}"]


@pytest.mark.parametrize("how", [{"load_balancing": "off"}, {"data": DataSpec("dots", 100, (28, 28, 1), 10)}])
def test_all_pause_if_a_hot_phones_images_cannot_move(how: dict[str, Any]) -> None:
    balancer = LoadBalancer(run_spec((8, 8), **how), 0, 8)
    assert balancer.observe(3, rows_of(Condition(), PAUSED)) is None
    balancer.observe(4, rows_of(Condition(), PAUSED))
    assert [balancer.pauses_before(step) for step in (4, 5, 6)] == [False, True, True]
    assert balancer.must_pause(Conditions.of([Condition(), PAUSED]))
    assert not balancer.must_pause(Conditions.of([Condition(), HOT]))
    balancer.resume()
    assert not balancer.pauses_before(6)


def test_blocked_rebalance_is_reported_once() -> None:
    spec = run_spec((8, 8), data=DataSpec("dots", 100, (28, 28, 1), 10))
    balancer = LoadBalancer(spec, 1, 8)
    slow = rows_of(Condition(), Condition(), compute_s=(1, 3))
    changes = [change for change in (balancer.observe(step, slow) for step in range(1, 30)) if change]
    assert [(change.blocked, change.reason) for change in changes] == [
        (True, "p1-02 (sw1:2): it takes 3.0 times as long per image as the others")
    ]
    assert balancer.micro_batches(30) == [slice(0, 8)]


def test_condition_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("phone_agent.train.events.time.monotonic", lambda: now[0])
    spec, good, drained = run_spec((8, 8)), Condition(), Condition(battery_percent=70, drains=1)
    for rank in (0, 1):
        with EventLog(rank, f"p1-0{rank + 1}", tmp_path / str(rank)) as events:
            watch = ConditionEvents(spec.ranks, rank, events)
            for each in (good, HOT, HOT, PAUSED, PAUSED, HOT, good, drained, drained):
                watch.observe(Conditions.of([each, good]))
            now[0] += STATUS_EVERY_S
            watch.observe(Conditions.of([good, HOT]))
    written = [[json.loads(line) for line in (tmp_path / str(rank)).read_text().splitlines()] for rank in (0, 1)]
    assert [(event["event"], event["phone"], event.get("message") or event.get("reason")) for event in written[0]] == [
        ("warning", "p1-01", "p1-01 (sw1:1): processor at 90 °C: its load should be reduced"),
        ("pause", "p1-01", "p1-01 (sw1:1) pauses: battery at 45 °C"),
        ("resume", "p1-01", "p1-01 (sw1:1) resumes"),
        (
            "warning",
            "p1-01",
            "p1-01 (sw1:1): the battery drains although it is plugged in (70 % left): use a stronger power supply",
        ),
        ("device_status", "p1-01", None),
        ("warning", "p1-02", "p1-02 (sw1:2): processor at 90 °C: its load should be reduced"),
        ("device_status", "p1-02", None),
    ]
    assert [(event["event"], event["rank"]) for event in written[1]] == [("warning", 1), ("device_status", 1)]
    assert (written[1][1]["temperature_c"], written[1][1]["battery_percent"], written[1][1]["level"]) == (
        90.0,
        None,
        "reduce",
    )


def test_executable_is_prepared_for_smaller_batches() -> None:
    graph = models.build("resnet20", 10, (32, 32, 3))
    state = State(graph, 1)
    executable = CpuBackend().compile(graph, state, 16, Options())
    images = np.random.default_rng(0).normal(0, 1, (16, 32, 32, 3)).astype(np.float32)
    labels = np.arange(16) % 10
    for size in (*range(15, 0, -1), 15):
        executable.prepare({size})
        loss = executable.loss_and_gradients(images[:size], labels[:size], 1.0)
        own = State(graph, 1)
        wanted = (
            get_backend("cpu")
            .compile(graph, own, size, Options())
            .loss_and_gradients(images[:size], labels[:size], 1.0)
        )
        assert loss == wanted
        np.testing.assert_array_equal(state.gradients, own.gradients)
    assert len(executable._plans) <= MAX_PLANS
    assert executable.forward(images).shape == (16, 10)
    with pytest.raises(BadRequestError, match="batch of 17: the network was compiled for at most 16"):
        executable.prepare({17})
