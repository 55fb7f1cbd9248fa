"""Frozen layers: no gradients are computed or sent for them, and all other layers train as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.comm.collective import Collective
from phone_agent.comm.factory import make_collective
from phone_agent.comm.reducer import PackedReducer
from phone_agent.comm.world import SingleProcessWorld, World
from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.schema import OptimizerSpec, ResumeSpec, RunSpec
from phone_agent.core.ops import Kind
from phone_agent.data.sampling import Union, sampler
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan import plan
from phone_agent.nn.plan.buckets import bucket_slices, trainable_bucket_slices
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.ops import Direction, OpSpec
from phone_agent.nn.plan.options import Options
from phone_agent.train import builder as building
from phone_agent.train import checkpoint
from phone_agent.train.builder import TrainerBuilder
from phone_agent.train.initial_state import build_graph, freeze
from phone_agent.train.optimizers import build_optimizer
from phone_agent.train.resume import resume
from tests.phone_agent.agreement import batch_of
from tests.phone_agent.phones import run_spec
from tests.phone_agent.random_graphs import frozen_graphs
from tests.phone_agent.thread_world import on_ranks

Array = NDArray[Any]
RESNET = models.build("resnet20", 10, (32, 32, 3))
WEIGHTS = {Kind.CONV_BACKWARD_WEIGHTS, Kind.DEPTHWISE_BACKWARD_WEIGHTS}


def gradients(graph: Graph, name: str = "cpu") -> tuple[float, dict[str, Array], State]:
    """Gradients of trainable parameters; those of frozen ones are undefined."""
    state = State(graph, 1)
    computing = get_backend(name)
    state.move(computing.array)
    parts_ready: list[tuple[int, int]] = []
    executable = computing.compile(graph, state, 4, Options(bucket_bytes=4096, gpu_share=0.5))
    images, labels = batch_of(graph, 4)
    loss = executable.loss_and_gradients(
        images, labels, 1.0, 9, ready=lambda *part: parts_ready.append(part), need=lambda *_: None
    )
    assert parts_ready == [(part.start, part.stop) for part in bucket_slices(state.packing, 4096)]
    views = state.packing.views(state.gradients)
    return loss, {each: view for each, view in views.items() if each not in graph.frozen}, state


def alike(graph: Graph, stays: Graph, name: str = "cpu", tolerance: float = 1e-5) -> None:
    (loss, wanted, _), (same, found, _) = gradients(graph, name), gradients(stays, name)
    assert same == pytest.approx(loss, rel=1e-6)
    assert set(found) == set(wanted) - stays.frozen
    most = max(np.abs(each).max() for each in wanted.values())
    for each, gradient in found.items():
        np.testing.assert_allclose(gradient, wanted[each], rtol=0, atol=tolerance * most, err_msg=each)


@given(frozen_graphs())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_freezing_does_not_change_other_gradients(graph: Graph) -> None:
    alike(replace(graph, frozen=frozenset()), graph)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("patterns", [("conv*",), ("conv2", "fc1.weight"), ("fc*",)])
def test_every_backend_skips_frozen_layers(name: str, patterns: tuple[str, ...]) -> None:
    graph = models.build("lenet", 10, (28, 28, 1))
    alike(graph, freeze(graph, patterns), name)


def backward(graph: Graph) -> list[OpSpec]:
    return [step for step in plan.make_plan(graph, 4, Options()).training.ops if step.direction == Direction.BACKWARD]


def test_backward_stops_at_the_first_trainable_layer() -> None:
    stays = freeze(RESNET, ("conv1", "bn1", "layer1", "layer2"))
    done = {step.name for step in backward(stays)}
    assert done
    assert all(name.startswith(("layer3", "fc", "avgpool")) for name in done), done
    names = [step.name for step in backward(stays) if step.kind == Kind.CONV_BACKWARD_DATA]
    assert "layer3.0.conv1" not in names
    assert "layer3.0.conv2" in names


def test_frozen_layer_in_between_only_propagates_gradients() -> None:
    stays = freeze(RESNET, ("layer2",))
    assert not any(step.name.startswith("layer2") for step in backward(stays) if step.kind in WEIGHTS)
    assert any(step.name.startswith("layer1") for step in backward(stays) if step.kind in WEIGHTS)
    fewer = len(backward(RESNET)) - len(backward(stays))
    assert fewer == sum(step.name.startswith("layer2") for step in backward(RESNET) if step.kind in WEIGHTS)


def test_no_activations_are_kept_for_frozen_layers() -> None:
    assert (
        estimate_memory(freeze(RESNET, ("conv1", "bn1", "layer*")), 32).arena < 0.5 * estimate_memory(RESNET, 32).arena
    )


def test_buckets_hold_only_trainable_parameters() -> None:
    packing = State(freeze(RESNET, ("*.bn1", "layer1", "fc.bias")), 0).packing
    found = trainable_bucket_slices(packing, 64 * 1024)
    assert [part.start for part in found] == [0, *(part.stop for part in found[:-1])]
    assert found[-1].stop == packing.trainable_size < packing.size
    assert bucket_slices(packing, 64 * 1024) == [*found, slice(packing.trainable_size, packing.size)]


def losses_as_before(spec: RunSpec, stays: frozenset[str]) -> tuple[list[float], dict[str, Array]]:
    """One process computes all gradients, applies them, and restores the frozen parameters."""
    graph = models.build(spec.model, spec.data.classes, spec.data.input_shape)
    state, source = State(graph, spec.seed), Union([sampler(spec, rank.rank, None) for rank in spec.ranks])
    executable = get_backend("cpu").compile(graph, state, spec.global_batch, Options())
    optimizer, losses = build_optimizer(spec.optimizer, state), []
    views = state.packing.views(state.values)
    for step in range(spec.steps):
        kept = {name: views[name].copy() for name in stays}
        batch = source.batch(step)
        losses.append(executable.loss_and_gradients(batch.images, batch.labels, 1.0))
        optimizer.update(slice(None), spec.optimizer.learning_rate, step + 1)
        for name, value in kept.items():
            views[name][...] = value
    return losses, views


def run(spec: RunSpec, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], dict[str, Array], int]:
    """Losses, weights and bytes sent by the first of two ranks."""
    rings: dict[int, Collective] = {}

    def ring(_spec: RunSpec, world: World, *_: object) -> PackedReducer:
        rings[world.rank] = make_collective("ring", world)
        return PackedReducer(rings[world.rank])

    def one(world: World) -> tuple[list[float], dict[str, Array]]:
        losses: list[float] = []
        trainer = TrainerBuilder(directory, spec, 1, world, lambda _, own: losses.append(own.loss), pytest.fail).build()
        list(trainer.loop.run(1, spec.steps))
        trainer.communication.overlap.drain()
        trainer.close()
        return losses, trainer.compute.state.packing.views(trainer.compute.state.values)

    monkeypatch.setattr(building, "make_reducer", ring)
    (first, values), (second, _) = on_ranks(2, one)
    return [(one + other) / 2 for one, other in zip(first, second, strict=True)], values, rings[0].traffic.bytes


@pytest.mark.parametrize("how", [{}, {"micro_batch": 2, "bucket_bytes": 100_000}, {"overlap": False}])
def test_frozen_parameters_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]) -> None:
    usual = run_spec((4, 4), steps=6, **how)
    spec = replace(usual, freeze=("conv1", "fc1.weight"))
    losses, values, sent = run(spec, tmp_path, monkeypatch)
    expected, wanted = losses_as_before(spec, build_graph(tmp_path, spec).frozen)
    np.testing.assert_allclose(losses, expected, rtol=5e-6)
    for name, value in values.items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-5, err_msg=name)
    packing = State(build_graph(tmp_path, spec), 0).packing
    everything = run(usual, tmp_path, monkeypatch)[2]
    assert sent == pytest.approx(everything * packing.trainable_size / packing.size, rel=0.01)
    assert sent < 0.1 * everything


def test_momenta_of_a_checkpoint_are_repacked(tmp_path: Path) -> None:
    """From a run without frozen layers, whose packing differs."""
    spec = replace(
        run_spec((4,), optimizer=OptimizerSpec("lamb")),
        freeze=("conv*",),
        resume=ResumeSpec(7, file="resume.safetensors"),
    )
    before, graph = State(models.build("lenet", 10, (28, 28, 1)), 1), build_graph(tmp_path, spec)
    before.momenta[...] = np.arange(before.momenta.size)
    about = checkpoint.build_metadata(spec, before, Synthetic(100, (28, 28, 1), 10, seed=0))
    saving = checkpoint.CheckpointWriter(tmp_path, models.build("lenet", 10, (28, 28, 1)), about, lambda *_, **__: None)
    saving.save(7, before, {"momenta": before.momenta, "second_momenta": 2 * before.momenta})
    saving.close()
    (tmp_path / "checkpoint-00000007.safetensors").rename(tmp_path / spec.resume.file)
    state = State(graph, 5)
    optimizer = build_optimizer(spec.optimizer, state)
    found = resume(tmp_path, spec, graph, state, optimizer, {}, SingleProcessWorld(), lambda _: None)
    assert (found.step, found.source) == (7, "checkpoint")
    for name, wanted in before.packing.views(before.momenta).items():
        np.testing.assert_array_equal(state.packing.views(optimizer.buffers["momenta"])[name], wanted)
        np.testing.assert_array_equal(state.packing.views(optimizer.buffers["second_momenta"])[name], 2 * wanted)
        assert state.packing.views(state.values)[name].tobytes() == before.packing.views(before.values)[name].tobytes()
