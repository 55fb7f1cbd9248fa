"""Training on several ranks equals training in one process with the same global batch. Real mpirun, real files."""

from __future__ import annotations

import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.comm.world import SingleProcessWorld, World
from phone_agent.contract import layout
from phone_agent.contract.dataset_manifest import shards_with
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import DataSpec, OptimizerSpec, Partition, PartitionSlice, RunSpec, ScheduleSpec
from phone_agent.contract.sharding import partition_span, rank_spans
from phone_agent.data import Dataset
from phone_agent.data.sampling import Batch, Normalizer, Union, sampler
from phone_agent.data.staged import Staged
from phone_agent.data.synthetic import Synthetic
from phone_agent.device import memory
from phone_agent.device.affinity import COMPUTE_NICENESS
from phone_agent.nn.packing import State, packing_of
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options
from phone_agent.train.builder import Trainer, TrainerBuilder
from phone_agent.train.evaluate import evaluate_samples
from phone_agent.train.events import EventLog
from phone_agent.train.loop import TrainingLoop, sizes, split_micro_batches
from phone_agent.train.memory_budget import affordable_bytes, plan_memory
from phone_agent.train.overlap import Overlap
from phone_agent.train.progress import RunMetrics
from phone_agent.train.rank_checks import own_rank
from phone_agent.train.rank_steps import RankStep
from phone_agent.train.timeline import Timeline
from tests.phone_agent.datasets import spec_of, stage
from tests.phone_agent.one_process import losses_alone
from tests.phone_agent.phones import AGENT, SYNTHETIC, Phone, make_phones, mpirun, run_spec
from tests.phone_agent.thread_world import on_ranks
from tests.phone_agent.threaded_training import FixedAssignment

STEPS = 12
# Float32 rounding: the ranks' gradients are added in another order than one process adds its samples'. Measured 1e-7
# over 12 steps; other BLAS libraries round differently. A wrong sample or weight shows in the 2nd digit.
TOLERANCE = 5e-6


def losses_of_one_process(spec: RunSpec, dataset: Dataset | None = None) -> list[float]:
    graph = models.build(spec.model, spec.data.classes, spec.data.input_shape)
    state = State(graph, spec.seed)
    source = Union([sampler(spec, rank.rank, dataset) for rank in spec.ranks])
    executable = get_backend(spec.compute.backend).compile(graph, state, spec.global_batch, Options())
    return losses_alone(executable, state, source, spec)


def train(phones: list[Phone], spec: RunSpec) -> list[float]:
    for phone in phones:
        phone.stage(spec)
    done = mpirun(phones, *AGENT, "train", spec.run_id)
    assert done.returncode == 0, done.stderr
    return [event["loss"] for event in phones[0].events(spec.run_id) if event["event"] == "step"]


@pytest.mark.parametrize(
    ("batches", "how"),
    [
        ((6, 6, 6, 6), {}),
        ((2, 9, 5, 8), {"threads": 2, "bucket_bytes": 100_000, "micro_batch": 4}),
        ((3, 5), {"overlap": False}),
        ((7, 3), {"algorithm": "mpi"}),
        ((3, 5), {"backend": "reference"}),
    ],
)
def test_ranks_train_like_one_process(tmp_path: Path, batches: tuple[int, ...], how: dict[str, Any]) -> None:
    spec = run_spec(batches, steps=STEPS, **how)
    losses = train(make_phones(tmp_path, len(batches)), spec)
    expected = losses_of_one_process(spec)
    assert len(losses) == STEPS
    np.testing.assert_allclose(losses, expected, rtol=TOLERANCE)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("whole", [True, False])
def test_staged_shards_and_the_test_set(tmp_path: Path, *, whole: bool) -> None:
    """Epochs of 300 samples: 24 steps reach into the third."""
    phones = make_phones(tmp_path, 4)
    batches = (12, 9, 6, 9)
    everything = stage(tmp_path / "dots", train=300, test=100)
    for rank, phone in enumerate(phones):
        share_of_it = shards_with(everything.train, [partition_span(300, batches, rank)])
        keep = None if whole else [file.name for file in (*share_of_it, *everything.test)]
        stage(phone.home / layout.dataset_dir("dots"), train=300, test=100, keep=keep)
    spec = run_spec(batches, steps=2 * STEPS, data=spec_of(everything, whole=whole))
    losses = train(phones, spec)
    dataset = Staged(tmp_path / "dots", everything, everything.train)
    np.testing.assert_allclose(losses, losses_of_one_process(spec, dataset), rtol=TOLERANCE)
    done = phones[0].events("run")[-1]
    assert done["event"] == "done"
    assert done["test_accuracy"] > 0.9


def test_other_phones_train_on_the_partition_of_a_lost_one(tmp_path: Path) -> None:
    """Each phone has its own partition and a part of the lost one; losses are those of all four phones."""
    everything = stage(tmp_path / "dots", train=300, test=100)
    data = spec_of(everything, whole=False)
    four = run_spec((12, 9, 6, 9), steps=STEPS, data=data)
    shares = tuple(Partition(rank.phone, rank.batch) for rank in four.ranks)
    turns = (
        (PartitionSlice(0, 0, 12), PartitionSlice(1, 0, 4)),
        (PartitionSlice(2, 0, 6), PartitionSlice(1, 4, 6)),
        (PartitionSlice(3, 0, 9), PartitionSlice(1, 6, 9)),
    )
    three = run_spec((16, 8, 12), steps=STEPS, data=replace(data, partitions=shares, assignments=turns))
    phones = make_phones(tmp_path, 3)
    for rank, phone in enumerate(phones):
        needed = shards_with(everything.train, rank_spans(three.data, (16, 8, 12), rank))
        keep = [file.name for file in (*needed, *everything.test)]
        stage(phone.home / layout.dataset_dir("dots"), train=300, test=100, keep=keep)
    dataset = Staged(tmp_path / "dots", everything, everything.train)
    np.testing.assert_allclose(train(phones, three), losses_of_one_process(four, dataset), rtol=TOLERANCE)


def test_events_follow_the_contract(phone: Phone) -> None:
    train([phone], run_spec((4,), steps=2, schedule=ScheduleSpec(warmup_steps=2)))
    start, plan, first, second, kept, done = phone.events("run")
    assert (start["event"], start["world"], start["parameters"], start["data"]) == ("start", 1, 431_080, "synthetic")
    assert start["memory_mb"] > 0
    assert start["recomputed"] == 0
    assert (first["step"], second["step"]) == (1, 2)
    chosen = (plan["event"], plan["algorithm"], plan["wire"], plan["predicted_s"], plan["limit_s"])
    assert chosen == ("comm_plan", "ring", "fp32", None, None)
    assert (kept["event"], kept["step"]) == ("checkpoint", 2)
    shown = {"loss", "images_per_s", "step_s", "compute_s", "comm_s", "reduce_s", "slowest", "hottest"}
    assert shown <= first.keys()
    assert (first["learning_rate"], second["learning_rate"]) == (0.005, 0.01)
    assert (done["event"], done["steps"], done["test_accuracy"]) == ("done", 2, None)
    assert all((event["rank"], event["phone"]) == (0, "p1-01") for event in (start, first, done))


def test_line_rate_counts_only_compressed_steps(tmp_path: Path) -> None:
    """The first tenth of the steps is not compressed and takes longer than predicted."""
    phones = make_phones(tmp_path, 2)
    train(phones, run_spec((4, 4), steps=20, wire="powersgd"))
    _, plan, *events, done = phones[0].events("run")
    assert plan["predicted_s"] > plan["limit_s"] > 0
    seconds = [event["reduce_s"] for event in events if event["event"] == "step" and event["step"] > 2]
    assert len(seconds) == 18
    assert done["line_rate_fraction"] == pytest.approx(plan["limit_s"] / np.mean(seconds))


def test_speed_counts_only_steps(phone: Phone) -> None:
    """Most of the time goes to evaluation and checkpoints."""
    manifest = stage(phone.home / layout.dataset_dir("dots"), train=40, test=2000)
    train([phone], run_spec((4,), steps=3, data=spec_of(manifest), eval_every=1, checkpoint_every=1))
    events = phone.events("run")
    stepping_s = sum(event["step_s"] for event in events if event["event"] == "step")
    assert events[-1]["images_per_s"] == pytest.approx(3 * 4 / stepping_s)
    assert events[-1]["seconds"] > stepping_s


def test_no_speed_without_steps(tmp_path: Path) -> None:
    with EventLog(0, "", tmp_path / "events") as events:
        assert RunMetrics(run_spec((4,)), SingleProcessWorld(), events).images_per_s is None


def test_divergence_ends_all_ranks_and_names_a_phone(tmp_path: Path) -> None:
    phones = make_phones(tmp_path, 2)
    spec = run_spec((4, 4), steps=50, optimizer=OptimizerSpec(learning_rate=1e6))
    for phone in phones:
        phone.stage(spec)
    done = mpirun(phones, *AGENT, "train", "run")
    assert done.returncode == 1
    for phone, name in ((phones[0], layout.EVENTS_FILE), (phones[1], layout.RANK_EVENTS_FILE)):
        error = phone.events("run", name)[-1]
        assert error["event"] == "error"
        assert "the loss is not finite on p1-0" in error["message"]
    assert "the loss is not finite" in done.stderr


def test_non_finite_weights_are_an_error_and_not_saved(tmp_path: Path) -> None:
    """The loss of the only step is that of the weights before it."""
    phones = make_phones(tmp_path, 2)
    spec = run_spec((4, 4), steps=1, optimizer=OptimizerSpec(learning_rate=1e39))
    for phone in phones:
        phone.stage(spec)
    done = mpirun(phones, *AGENT, "train", "run")
    assert done.returncode == 1
    *_, last, error = phones[0].events("run")
    assert (last["event"], error["event"]) == ("step", "error")
    assert error["message"].startswith("step 1: weights on p1-01 (sw1:1) are not finite: lower")
    assert not list(phones[0].run_dir("run").glob(layout.CHECKPOINTS))


def test_automatic_micro_batches_are_a_warning(phone: Phone) -> None:
    graph = models.build("lenet", 10, SYNTHETIC.shape)
    budget = estimate_memory(graph, 16, Options(moments=5)).total  # momenta, checkpoint copy, in-memory checkpoint
    train([phone], run_spec((64,), steps=1, memory_bytes=budget))
    (warning,) = [event["message"] for event in phone.events("run") if event["event"] == "warning"]
    assert re.match(r"p1-01 \(sw1:1\): not enough memory for batch 64: split into [234] micro-batches", warning)


def test_waiting_time_is_summed_per_phone(tmp_path: Path) -> None:
    """They wait in turn, never all at the same step."""

    def one(world: World) -> list[float]:
        with EventLog(world.rank, "", tmp_path / str(world.rank)) as events:
            metrics = RunMetrics(run_spec((4, 4)), world, events)
            for step in (1, 2):
                waited = float(step) if world.rank == step - 1 else 0.0
                metrics.report(step, RankStep(1.0, 1.0, waited))
            return [*metrics.waited_s]

    assert on_ranks(2, one) == [[1.0, 2.0]] * 2


def damage_shard(phones: list[Phone]) -> RunSpec:
    """Only the second phone lacks it."""
    stage(phones[0].home / layout.dataset_dir("dots"), train=40)
    manifest = stage(phones[1].home / layout.dataset_dir("dots"), train=40, keep=[])
    return run_spec((4, 4), data=spec_of(manifest))


def swap_addresses(_: list[Phone]) -> RunSpec:
    spec = run_spec((4, 4))
    return RunSpec.from_json(spec.to_json().replace("127.77.1.2", "192.0.2.77"))


FAULTS: dict[str, tuple[Callable[[list[Phone]], RunSpec], str]] = {
    "shard missing": (damage_shard, "is the dataset pushed to this phone?"),
    "wrong address": (swap_addresses, "should be p1-02 at 192.0.2.77, but this phone does not have that address"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failing_rank_reports_its_error_and_ends_the_run(tmp_path: Path, fault: str) -> None:
    phones = make_phones(tmp_path, 2)
    prepare, message = FAULTS[fault]
    spec = prepare(phones)
    for phone in phones:
        phone.stage(spec)
    done = mpirun(phones, *AGENT, "train", "run")
    assert done.returncode == 1
    assert message in done.stderr
    errors = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"event": "error"')]
    assert any(message in error["message"] for error in errors)
    rank_logs = [(phone.run_dir("run") / layout.RANK_LOG).read_text() for phone in phones]
    assert any("Traceback" in log for log in rank_logs)  # the first to fail ends the others


def make_unwritable(directory: Path) -> None:
    (directory / layout.RANK_EVENTS_FILE).mkdir()


def test_rank_that_cannot_report_still_ends_the_run(tmp_path: Path) -> None:
    phones = make_phones(tmp_path, 2)
    spec = run_spec((4, 4))
    make_unwritable([phone.stage(spec) for phone in phones][1])
    done = mpirun(phones, *AGENT, "train", "run", timeout=60)
    assert done.returncode == 1
    assert "OSError" in done.stderr or "IsADirectoryError" in done.stderr


def test_full_disk_loses_events_but_not_the_run(tmp_path: Path) -> None:
    phones = make_phones(tmp_path, 2)
    spec = run_spec((4, 4))
    ([phone.stage(spec) for phone in phones][1] / layout.RANK_EVENTS_FILE).symlink_to("/dev/full")
    done = mpirun(phones, *AGENT, "train", "run", timeout=60)
    assert done.returncode == 0, done.stderr
    assert "events are being lost" in done.stderr


@pytest.mark.parametrize("backend", ["cpu", "hybrid", "reference"])
def test_micro_batches_of_two_leave_no_single_image_to_batch_normalization(tmp_path: Path, backend: str) -> None:
    """An odd batch with --micro-batch 2, on 4x4 images, which become 1x1 maps."""
    data = DataSpec("synthetic", 600, (4, 4, 3), 10)
    options: dict[str, Any] = {"backend": backend, "micro_batch": 2, "min_micro_batch": 2}
    spec = replace(run_spec((5, 2), data=data, **options), model="mobilenet_reduced")

    def one(world: World) -> list[int]:
        trainer = TrainerBuilder(tmp_path, spec, 1, world, lambda *_: None, pytest.fail).build()
        assert trainer.compute.graph.min_batch == 2
        list(trainer.loop.run(1, spec.steps))
        trainer.communication.overlap.drain()
        trainer.close()
        assert np.isfinite(trainer.compute.state.values).all()
        return sizes(trainer.load_balancer.micro_batches(1))

    assert on_ranks(2, one) == [[2, 3], [2]]


@pytest.mark.parametrize(("algorithm", "gives_way"), [("ring", True), ("mpi", False)])
def test_compute_threads_have_lower_priority_than_communication(
    tmp_path: Path, algorithm: str, *, gives_way: bool
) -> None:
    """Threads inherit the priority of their creator; MPI's own allreduce does not sleep."""
    spec, before = run_spec((4, 4), algorithm=algorithm), set(threading.enumerate())
    usual = os.getpriority(os.PRIO_PROCESS, 0)

    def one(world: World) -> Trainer:
        return TrainerBuilder(tmp_path, spec, 2, world, lambda *_: None, pytest.fail).build()

    trainers = on_ranks(2, one)
    niceness: dict[str, set[int]] = {}
    for thread in set(threading.enumerate()) - before:
        assert thread.native_id is not None
        niceness.setdefault(thread.name, set()).add(os.getpriority(os.PRIO_PROCESS, thread.native_id) - usual)
    for trainer in trainers:
        trainer.close()
    computing = {COMPUTE_NICENESS} if gives_way else {0}
    assert niceness.pop("communication") == {0}
    assert niceness.pop("prefetch") == computing
    assert niceness.pop("core-1") == computing


SPECS = {
    "3 ranks": (run_spec((4, 4, 4)), "mpirun started 1 ranks, run.json has 3"),
    "batch of none": (run_spec((0,)), "gives p1-01 a batch of 0"),
    "wire format": (run_spec((4,), wire="fp8"), "unknown wire format 'fp8'; choose one of: auto, fp32"),
    "order": (RunSpec.from_json(run_spec((4,)).to_json().replace('"rank": 0', '"rank": 1')), "as 0, 1, 2"),
}


@pytest.mark.parametrize("name", SPECS)
def test_invalid_specs_are_rejected(name: str) -> None:
    spec, message = SPECS[name]
    with pytest.raises(AgentError, match=message):
        own_rank(spec, SingleProcessWorld())


def test_network_that_does_not_fit_is_rejected(phone: Phone) -> None:
    spec = run_spec((64,), memory_bytes=50_000_000)
    phone.stage(spec)
    done = mpirun([phone], *AGENT, "train", spec.run_id)
    assert done.returncode == 1
    assert "of memory, the budget is 50 MB" in done.stderr


def test_nothing_is_recomputed_without_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, options = models.build("resnet20", 10, (32, 32, 3)), Options(threads=2)
    lean = estimate_memory(graph, 128, options)
    for available in (None, 1_000_000):
        monkeypatch.setattr(memory, "available_mb", lambda available=available: available)
        assert plan_memory(graph, 128, options, affordable_bytes()) == (options, lean)


def test_recomputation_makes_the_batch_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, options = models.build("resnet20", 10, (32, 32, 3)), Options(threads=2)
    lean = estimate_memory(graph, 128, options)
    monkeypatch.setattr(memory, "available_mb", lambda: int((0.8 * lean.total - lean.process) / 0.6 / 1e6))
    within, planned = plan_memory(graph, 128, options, affordable_bytes())
    assert within.memory_bytes == affordable_bytes()
    assert planned.total <= 0.8 * lean.total
    assert len(planned.recomputed) > len(lean.recomputed)


def test_batch_that_cannot_fit_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, options = models.build("resnet20", 10, (32, 32, 3)), Options(threads=2)
    budget = estimate_memory(graph, 16, options).total
    for given, available in ((budget, None), (None, int(budget / 0.6 / 1e6) + 1)):
        monkeypatch.setattr(memory, "available_mb", lambda available=available: available)
        within, planned = plan_memory(graph, 1000, replace(options, memory_bytes=given), affordable_bytes())
        assert 16 <= planned.batch < 1000
        assert within.memory_bytes is not None
        assert planned.total <= within.memory_bytes
    assert plan_memory(graph, 1000, options, affordable_bytes(), micro_batch=3)[1].batch == 3


def test_single_image_that_does_not_fit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_mb", lambda: 1)
    graph = models.build("lenet", 10, SYNTHETIC.shape)
    with pytest.raises(AgentError, match="the budget is 68 MB, this process plus 60% of the memory avail"):
        plan_memory(graph, 8, Options(), affordable_bytes())
    given = Options(memory_bytes=500_000_000)
    assert plan_memory(graph, 8, given, affordable_bytes())[0] == given


def test_process_memory_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Available memory does not include it."""
    graph, options = models.build("resnet20", 10, (32, 32, 3)), Options(threads=2)
    lean = estimate_memory(graph, 128, options)
    monkeypatch.setattr(memory, "available_mb", lambda: -(-(lean.total - lean.process) // 600_000))
    assert plan_memory(graph, 128, options, affordable_bytes()) == (options, lean)


def test_phones_that_write_checkpoints_plan_memory_for_the_copy(tmp_path: Path) -> None:
    spec = run_spec((4, 4, 4), optimizer=OptimizerSpec("lamb"))

    def one(world: World) -> int:
        trainer = TrainerBuilder(tmp_path, spec, 1, world, lambda *_: None, pytest.fail).build()
        trainer.close()
        assert trainer.compute.memory is not None
        return trainer.compute.memory.total

    head, other, last = on_ranks(3, one)
    assert head - other == last - other == 3 * 4 * packing_of(models.build("lenet", 10, (28, 28, 1))).size


class OneAtATime:
    """Returns batches, and expects that nothing refers to the one before."""

    def __init__(self) -> None:
        self._before: Callable[[], Batch | None] = lambda: None

    def batch(self, step: int, part: slice = slice(None)) -> Batch:
        assert self._before() is None
        batch = Batch(np.full((2, *SYNTHETIC.shape), step, np.float32)[part], np.array([0, 1])[part])
        self._before = weakref.ref(batch)
        return batch

    def expect(self, parts: Sequence[slice]) -> None: ...

    def close(self) -> None: ...


class Nothing:
    """A communication thread without work."""

    def reduce(self, where: slice, step: int) -> None: ...

    def update(self, part: slice, step: int) -> None: ...

    def exchange(self, step: int, own: RankStep) -> None: ...

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return row[None]


def test_batch_is_freed_before_the_next_is_made() -> None:
    graph = models.build("lenet", 10, SYNTHETIC.shape)
    state = State(graph, 0)
    executable = get_backend("cpu").compile(graph, state, 1, Options())
    overlap = Overlap(bucket_slices(state.packing, Options().bucket_bytes), 1 << 20, Nothing(), Timeline())
    loop = TrainingLoop(
        executable, OneAtATime(), overlap, FixedAssignment(split_micro_batches(2, 1)), 2, state.gradients
    )
    assert len(list(loop.run(1, 3))) == 3
    overlap.close()


@pytest.mark.parametrize("samples", [3, 70, 100])
def test_held_out_samples_are_evaluated_in_batches(samples: int) -> None:
    graph = models.build("lenet", 10, SYNTHETIC.shape)
    executable = get_backend("cpu").compile(graph, State(graph, 0), 7, Options())
    held_out = Synthetic(samples, SYNTHETIC.shape, 10, seed=1)
    images, labels = held_out.take(np.arange(samples))
    scores = executable.forward(Normalizer(held_out, samples).normalize(images))
    right = int((scores.argmax(axis=1) == labels).sum())
    assert evaluate_samples(executable, held_out, range(samples), Normalizer(held_out, 7))[1] == right


@pytest.mark.parametrize("threads", [65, 1000])
def test_too_many_threads_are_rejected(phone: Phone, threads: int) -> None:
    spec = run_spec((4,), threads=threads)
    phone.stage(spec)
    done = mpirun([phone], *AGENT, "train", spec.run_id)
    assert done.returncode == 1
    assert f"{threads} threads requested, but only 1 to 64" in done.stderr


def test_statistics_and_dropout_on_several_phones(tmp_path: Path) -> None:
    """Batch normalization sees only the batch of its own phone, so one process differs; but runs are reproducible."""
    data = DataSpec("synthetic", 400, (32, 32, 3), 10)
    losses = []
    for attempt in ("a", "b"):
        (tmp_path / attempt).mkdir()
        spec = replace(run_spec((4, 4), steps=6, data=data), model="mobilenet_reduced")
        losses.append(train(make_phones(tmp_path / attempt, 2), spec))
    assert losses[0] == losses[1]
    assert np.isfinite(losses).all()
