"""Local SGD: with a sync at every step it is synchronous SGD; ranks agree after sync steps, and learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.comm.factory import make_collective
from phone_agent.comm.reducer import PackedReducer
from phone_agent.comm.world import SingleProcessWorld, World
from phone_agent.contract.schema import OptimizerSpec, RunSpec
from phone_agent.nn.packing import State
from phone_agent.train.checkpoint_schedule import CheckpointSchedule
from phone_agent.train.local_sgd import LocalSgd, is_sync_step
from phone_agent.train.optimizers import build_optimizer
from tests.phone_agent.phones import AGENT, make_phones, mpirun, run_spec
from tests.phone_agent.thread_world import on_ranks

Array = NDArray[Any]
GRAPH = models.build("lenet", 10, (28, 28, 1))
BATCHES = (3, 5)
RATE = 0.1
PLAIN = OptimizerSpec(momentum=0.0)


def slope(values: Array, rank: int) -> Array:
    """Gradient of a quadratic function whose minimum differs between ranks."""
    return values - np.float32(rank + 1)


def trained(spec: RunSpec, steps: int) -> list[list[Array]]:
    """The weights of each rank after each step."""

    def one(world: World) -> list[Array]:
        state = State(GRAPH, 1)
        made = build_optimizer(spec.optimizer, state, backend="reference")
        share = BATCHES[world.rank] / sum(BATCHES)
        local = LocalSgd(
            made, PackedReducer(make_collective("ring", world)), state, spec, CheckpointSchedule(spec), share
        )
        half = next(slot.offset for slot in list(state.packing.slots.values())[2:])
        after = []
        for step in range(1, steps + 1):
            state.gradients[:] = slope(state.values, world.rank)
            for part in (slice(0, half), slice(half, state.values.size)):
                local.reduce(state.gradients, part, step)
                local.update(part, RATE, step)
            after.append(state.values.copy())
        return after

    return on_ranks(len(BATCHES), one)


def test_sync_every_step_is_synchronous_sgd() -> None:
    spec = run_spec(BATCHES, steps=100, optimizer=PLAIN)
    values = State(GRAPH, 1).values.astype(np.float64)
    for _ in range(3):
        values -= RATE * sum(BATCHES[rank] / 8 * slope(values, rank) for rank in range(2))
    for rank in trained(spec, 3):
        np.testing.assert_allclose(rank[-1], values, rtol=0, atol=1e-6)


def test_ranks_are_identical_after_sync_steps_only() -> None:
    left, right = trained(run_spec(BATCHES, steps=7, local_steps=3), 7)
    agree = [bool(np.array_equal(one, other)) for one, other in zip(left, right, strict=True)]
    assert agree == [False, False, True, False, False, True, True]


class Asked(PackedReducer):
    """Records the steps in which something was reduced."""

    def __init__(self) -> None:
        super().__init__(make_collective("ring", SingleProcessWorld()))
        self.steps: list[int] = []

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        self.steps.append(step)
        super().reduce(gradients, part, step)


def test_reducer_gets_the_step_number() -> None:
    state, asked = State(GRAPH, 1), Asked()
    spec = run_spec((4,), steps=40, local_steps=10, eval_every=25)
    local = LocalSgd(
        build_optimizer(PLAIN, state, backend="reference"), asked, state, spec, CheckpointSchedule(spec), 1.0
    )
    for step in range(1, 41):
        local.update(slice(0, state.values.size), RATE, step)
    assert asked.steps == [10, 20, 25, 30, 40]


def test_outer_step_is_that_of_diloco() -> None:
    spec = run_spec(BATCHES, steps=100, local_steps=2, optimizer=PLAIN, outer_learning_rate=0.7, outer_momentum=0.9)
    anchor = State(GRAPH, 1).values.astype(np.float64)
    momenta = np.zeros_like(anchor)
    for _ in range(3):
        outer = np.zeros_like(anchor)
        for rank, batch in enumerate(BATCHES):
            values = anchor.copy()
            for _ in range(2):
                values -= RATE * slope(values, rank)
            outer += batch / sum(BATCHES) * (anchor - values)
        momenta = 0.9 * momenta + outer
        anchor -= 0.7 * (outer + 0.9 * momenta)
    np.testing.assert_allclose(trained(spec, 6)[0][-1], anchor, rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{"eval_every": 5}, {"checkpoint_every": 5}])
def test_evaluation_and_checkpoints_are_sync_steps(changes: dict[str, Any]) -> None:
    spec = run_spec(BATCHES, steps=11, local_steps=4, **changes)
    checkpoints = CheckpointSchedule(spec)
    checkpoints.add(7)  # on request
    assert [step for step in range(1, 12) if is_sync_step(spec, checkpoints, step)] == [4, 5, 7, 8, 10, 11]


def test_local_sgd_learns(tmp_path: Path) -> None:
    spec = run_spec((8, 8), steps=24, local_steps=4, optimizer=OptimizerSpec(learning_rate=0.02))
    phones = make_phones(tmp_path, 2)
    for phone in phones:
        phone.stage(spec)
    ended = mpirun(phones, *AGENT, "train", spec.run_id)
    assert ended.returncode == 0, ended.stderr
    events = phones[0].events(spec.run_id)
    losses = [event["loss"] for event in events if event["event"] == "step"]
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])
