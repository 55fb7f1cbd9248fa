"""In-memory checkpoints: a rank may be killed at any moment, and training resumes from its last committed step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phone_agent import models
from phone_agent.comm.powersgd import uncompressed_steps
from phone_agent.comm.world import SingleProcessWorld
from phone_agent.contract import layout, safetensors
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.schema import DeviceConfig, OptimizerSpec, RunSpec
from phone_agent.device import memory as device_memory
from phone_agent.memckpt import client, memfd, replica
from phone_agent.memckpt.checkpointer import MemoryCheckpointer, NullCheckpointer
from phone_agent.memckpt.server import serve
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import MemoryPlan
from phone_agent.train.builder import TrainerBuilder
from phone_agent.train.device_config import mappable_buffers
from phone_agent.train.loop import StepUpdates
from phone_agent.train.memory_budget import memckpt_floats
from phone_agent.train.resume import open_checkpointer
from tests.phone_agent.phones import SYNTHETIC, Phone, events, forget, make_phones, resumed, run_spec, stage, train


@pytest.fixture
def served_run(tmp_path: Path) -> Iterator[Path]:
    """A run directory with a running server. Its path is longer than the path of a Unix socket may be."""
    run = tmp_path / ("x" * 120)
    run.mkdir()
    server = threading.Thread(target=serve, args=(run,))
    server.start()
    wait_until(lambda: client.is_running(run))
    yield run
    client.stop_server(run)
    server.join()


def wait_until(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def like(value: float = 0.0) -> dict[str, Any]:
    return {"values": np.full(5000, value, np.float32), "statistics": np.full(3, value, np.float32)}


MAPPED = ("values",)


def open_replica(run: Path, like: dict[str, Any]) -> tuple[client.CheckpointClient, replica.Replica]:
    connection = client.CheckpointClient(run)
    descriptor, kind = connection.open(replica.signature(like, MAPPED), replica.size(like))
    stored = replica.Replica(descriptor, like, MAPPED)
    os.close(descriptor)
    assert kind == "memory"
    return connection, stored


def run_step(stored: replica.Replica, number: int) -> None:
    stored.live["values"][...] = number
    stored.commit(CommittedStep(number, 0), like(float(number)))
    stored.take_snapshot(CommittedStep(number, 0))


def test_memory_outlives_the_client_that_wrote_it(served_run: Path) -> None:
    first, stored = open_replica(served_run, like())
    run_step(stored, 1)
    run_step(stored, 2)
    stored.commit(CommittedStep(3, 0), like(3.0))
    first.close()
    assert client.held_steps(served_run) == [CommittedStep(2, 0), CommittedStep(3, 0)]
    second, stored = open_replica(served_run, like())
    found = like()
    stored.ensure_snapshot(CommittedStep(2, 0))
    stored.load(CommittedStep(2, 0), found)
    assert all((buffer == 2).all() for buffer in (found["statistics"], stored.live["values"]))
    second.close()


def test_partially_committed_step_is_not_held(served_run: Path) -> None:
    connection, stored = open_replica(served_run, like())
    run_step(stored, 1)
    with pytest.raises(KeyError):
        stored.commit(CommittedStep(2, 0), {"values": like()["values"]})
    assert stored.committed_steps() == [CommittedStep(1, 0)]
    connection.close()


def test_memory_with_another_signature_is_replaced(served_run: Path) -> None:
    connection, stored = open_replica(served_run, like())
    run_step(stored, 1)
    another, other = open_replica(served_run, {"values": like()["values"]})
    assert other.committed_steps() == []
    connection.close()
    another.close()


def test_live_buffers_are_page_aligned(served_run: Path) -> None:
    """The compute core needs aligned memory."""
    odd = {name: np.zeros(size, np.float32) for name, size in (("statistics", 3), ("values", 1025), ("momenta", 1))}
    connection = client.CheckpointClient(served_run)
    descriptor, _ = connection.open(replica.signature(odd, odd), replica.size(odd))
    stored = replica.Replica(descriptor, odd, odd)
    os.close(descriptor)
    assert {view.ctypes.data % 4096 for view in stored.live.values()} == {0}
    connection.close()


def test_live_buffers_outlive_the_server(served_run: Path) -> None:
    """A finished run is still evaluated and saved after its server stopped."""
    connection, stored = open_replica(served_run, like())
    stored.live["values"][...] = 7
    client.stop_server(served_run)
    connection.close()
    stored.live["values"][0] = 8
    assert stored.live["values"].sum() == 7 * 4999 + 8


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
@pytest.mark.parametrize("method", ["sgd", "lamb"])
@pytest.mark.parametrize(("wire", "local_steps", "outer_momentum"), [("fp32", 1, 0), ("int8", 1, 0), ("int8", 4, 0.5)])
def test_memory_use_matches_the_plan(
    served_run: Path, backend: str, method: str, wire: str, local_steps: int, outer_momentum: float
) -> None:
    rules, mapped = OptimizerSpec(method), mappable_buffers(backend)
    spec = run_spec((4,), optimizer=rules, local_steps=local_steps, outer_momentum=outer_momentum)
    state = State(models.build("lenet", 10, SYNTHETIC.shape), 0)
    reducer_buffers = {"residuals": state.gradients} if wire == "int8" else {}
    stored = open_checkpointer(served_run, spec, state, reducer_buffers, mapped, SingleProcessWorld(), pytest.fail)
    outside_live = client.query(served_run, "status")["bytes"] - sum(buffer.nbytes for buffer in stored.live.values())
    planned = memckpt_floats(rules, replace(spec.communication, wire=wire), mapped) * state.values.nbytes
    assert planned <= outside_live < 1.02 * planned + 65536
    stored.discard()


def test_allocated_bytes_are_the_pages_written(served_run: Path) -> None:
    """The kernel allocates pages on the first write; until then they count as available."""
    assert client.allocated_bytes(served_run) == 0
    connection, stored = open_replica(served_run, like())
    before = client.allocated_bytes(served_run)
    run_step(stored, 1)
    run_step(stored, 2)
    assert before < client.allocated_bytes(served_run) == replica.size(like())
    connection.close()


def test_file_backed_memory_counts_as_available(monkeypatch: pytest.MonkeyPatch, served_run: Path) -> None:
    monkeypatch.setattr(memfd, "_memfd", lambda _: -1)
    connection = client.CheckpointClient(served_run)
    descriptor, kind = connection.open(replica.signature(like(), ()), replica.size(like()))
    run_step(replica.Replica(descriptor, like(), MAPPED), 1)
    os.close(descriptor)
    assert (kind, client.allocated_bytes(served_run)) == ("file", 0)
    connection.close()


def test_without_a_server_nothing_is_allocated(tmp_path: Path) -> None:
    assert client.allocated_bytes(tmp_path) == 0


def test_later_attempt_plans_the_same_memory_although_the_server_uses_some(
    monkeypatch: pytest.MonkeyPatch, served_run: Path
) -> None:
    spec = run_spec((64,), steps=2)

    def planned(attempt: int, available_mb: int) -> MemoryPlan | None:
        monkeypatch.setattr(device_memory, "available_mb", lambda: available_mb)
        there = replace(spec, attempt=attempt)
        trainer = TrainerBuilder(
            served_run, there, 1, SingleProcessWorld(), lambda *_: None, pytest.fail, checkpointing=True
        ).build()
        for _ in trainer.loop.run(trainer.recovery.step + 1, 2):
            trainer.communication.overlap.drain()
        trainer.close()
        assert isinstance(trainer.recovery.checkpointer, MemoryCheckpointer)
        trainer.recovery.checkpointer.close()  # as when the process exits
        return trainer.compute.memory

    lean = planned(0, 1_000_000)
    assert lean is not None
    enough = -(-(lean.total - lean.process) // 600_000)
    allocated = client.allocated_bytes(served_run)
    assert allocated > lean.values + lean.gradients
    assert planned(1, enough - allocated // 1_000_000) == lean


def test_training_state_is_mapped_and_keeps_its_initial_values(served_run: Path) -> None:
    state = State(models.build("lenet", 10, SYNTHETIC.shape), 3)
    start = state.values.copy()
    stored = open_checkpointer(
        served_run, run_spec((4,)), state, {}, mappable_buffers("cpu"), SingleProcessWorld(), pytest.fail
    )
    assert np.shares_memory(state.values, stored.live["values"])
    assert np.shares_memory(state.momenta, stored.live["momenta"])
    np.testing.assert_array_equal(state.values, start)
    stored.discard()


def test_no_buffer_is_mapped_into_a_file(monkeypatch: pytest.MonkeyPatch, served_run: Path) -> None:
    """It would wear the flash at every step."""
    monkeypatch.setattr(memfd, "_memfd", lambda _: -1)
    warnings: list[str] = []
    trainer = TrainerBuilder(
        served_run,
        run_spec((4,), steps=2),
        1,
        SingleProcessWorld(),
        lambda *_: None,
        warnings.append,
        checkpointing=True,
    ).build()
    assert isinstance(trainer.recovery.checkpointer, MemoryCheckpointer)
    assert trainer.recovery.checkpointer.live == {}
    assert [message.split(":")[0] for message in warnings] == ["the kernel has no memfd"]
    for _ in trainer.loop.run(1, 2):
        trainer.communication.overlap.drain()
    assert client.held_steps(served_run) == [CommittedStep(2, 0)]
    trainer.close()
    trainer.recovery.checkpointer.discard()


def test_commit_precedes_the_exchange_and_the_snapshot_follows_it() -> None:
    """A rank that completes the exchange knows that all ranks have committed the step."""
    calls: list[str] = []

    class Recorder(NullCheckpointer):
        def commit(self, step: int) -> None:
            calls.append(f"commit {step}")

        def take_snapshot(self, step: int) -> None:
            calls.append(f"snapshot {step}")

    nothing: Any = None
    report = lambda step, _: calls.append(f"report {step}")  # noqa: E731 - one line instead of four
    StepUpdates(nothing, nothing, nothing, nothing, nothing, report, Recorder()).exchange(5, nothing)
    assert calls == ["commit 5", "report 5", "snapshot 5"]


def test_socket_is_private_to_the_user(served_run: Path) -> None:
    assert (served_run / layout.MEMCKPT_SOCKET).stat().st_mode & 0o777 == 0o600


def test_second_server_of_a_run_exits(served_run: Path) -> None:
    assert serve(served_run) is False


def test_server_survives_invalid_requests(served_run: Path) -> None:
    for invalid in (b"{", b"[]", b'{"request": "open"}', b"\xff" * 100, b"7"):
        with client.connect(served_run) as stranger:
            stranger.sendall(invalid)
    assert client.held_steps(served_run) == []


def test_idle_server_exits(tmp_path: Path) -> None:
    assert serve(tmp_path, idle_s=0.05) is True
    assert not (tmp_path / layout.MEMCKPT_SOCKET).exists()


# ------------------------------------------------------------------------------------------------- with real ranks


@pytest.fixture
def phones(tmp_path: Path) -> Iterator[list[Phone]]:
    made = make_phones(tmp_path, 2)
    yield made
    forget(made)


def train_and_kill(phones: Sequence[Phone], spec: RunSpec, step: int, victim: int) -> None:
    """Train until that step is reported, then kill a rank."""

    def kill() -> None:
        wait_until(lambda: any(event.get("step") == step for event in events(phones[0], spec)))
        start = phones[victim].home / layout.attempt_dir(spec.run_id, spec.attempt) / layout.RANK_EVENTS_FILE
        os.kill(json.loads(start.read_text().splitlines()[0])["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert train(phones, spec).returncode != 0
    killer.join()


def weights(phone: Phone, spec: RunSpec) -> dict[str, Any]:
    content = safetensors.read(phone.run_dir(spec.run_id) / layout.checkpoint_file(spec.steps))
    return content.tensors


def assert_line_rate_covers_own_steps(phone: Phone, spec: RunSpec) -> None:
    """The line rate is computed from the steps of this attempt, not of the whole run."""
    written = events(phone, spec)
    limit_s = next(event["limit_s"] for event in written if event["event"] == "comm_plan")
    in_full = uncompressed_steps(spec.steps) if spec.communication.wire == "powersgd" else 0
    seconds = [event["reduce_s"] for event in written if event["event"] == "step" and event["step"] > in_full]
    fraction = (
        None if spec.communication.local_steps > 1 or limit_s is None else pytest.approx(limit_s / np.mean(seconds))
    )
    assert written[-1]["line_rate_fraction"] == fraction


STEPS = 120
HALF_EACH = {f"p1-0{number}": DeviceConfig("hybrid", gpu_fraction=0.5) for number in (1, 2)}


@pytest.mark.parametrize(
    ("victim", "changes"),
    [
        (1, {}),
        pytest.param(0, {"model": "resnet20", "steps": 40}, marks=pytest.mark.slow),
        pytest.param(1, {"wire": "int8"}, marks=pytest.mark.slow),
        pytest.param(0, {"wire": "powersgd"}, marks=pytest.mark.slow),
        pytest.param(0, {"local_steps": 7, "outer_momentum": 0.5}, marks=pytest.mark.slow),
        pytest.param(1, {"optimizer": OptimizerSpec("lamb")}, marks=pytest.mark.slow),
        pytest.param(0, {"backend": "reference"}, marks=pytest.mark.slow),
        pytest.param(1, {"backend": "opencl"}, marks=pytest.mark.slow),
        pytest.param(0, {"backend": "hybrid", "devices": HALF_EACH}, marks=pytest.mark.slow),
    ],
)
def test_killing_a_rank_does_not_change_the_result(phones: list[Phone], victim: int, changes: dict[str, Any]) -> None:
    fields = {"steps": STEPS, "bucket_bytes": 1 << 20, "load_balancing": "off", **changes}
    model = fields.pop("model", "lenet")
    spec = replace(run_spec((4, 3), **fields), model=model)
    undisturbed = replace(spec, run_id="undisturbed")
    assert train(phones, undisturbed).returncode == 0
    train_and_kill(phones, spec, 20, victim)
    reported = max(event["step"] for event in events(phones[0], spec) if event["event"] == "step")
    again = resumed(phones, spec, 1)
    assert train(phones, again).returncode == 0
    start = events(phones[0], again)[0]
    assert (start["resumed_from"], start["attempt"], start["backend"]) == ("memory", 1, changes.get("backend", "cpu"))
    assert reported <= start["resumed"] <= reported + 1
    assert_line_rate_covers_own_steps(phones[0], again)
    expected, found = weights(phones[0], undisturbed), weights(phones[0], again)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert all(client.held_steps(phone.run_dir("run")) == [] for phone in phones), "a finished run holds no state"


def test_phone_without_state_receives_it_from_another(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=STEPS, bucket_bytes=1 << 20, load_balancing="off")
    train_and_kill(phones, spec, 20, 1)
    client.stop_server(phones[0].run_dir("run"))
    again = resumed(phones, spec, 1)
    assert train(phones, again).returncode == 0
    assert events(phones[0], again)[0]["resumed"] >= 20


@pytest.mark.parametrize("wire", ["int8", pytest.param("powersgd", marks=pytest.mark.slow)])
def test_state_moves_from_two_phones_to_one_and_back(phones: list[Phone], wire: str) -> None:
    both = run_spec((4, 3), steps=600, bucket_bytes=1 << 20, load_balancing="off", wire=wire)
    alone = run_spec((7,), steps=600, bucket_bytes=1 << 20, load_balancing="off", wire=wire)
    train_and_kill(phones, both, 80, 1)
    train_and_kill(phones[:1], alone := resumed(phones[:1], alone, 1), 160, 0)
    train_and_kill(phones, again := resumed(phones, both, 2), 240, 1)
    for before, after in ((both, alone), (alone, again)):
        reported = max(event["step"] for event in events(phones[0], before) if event["event"] == "step")
        start = events(phones[0], after)[0]
        assert start["resumed_from"] == "memory"
        assert reported <= start["resumed"] <= reported + 1


def test_yielding_attempt_ends_after_the_same_step_on_all_ranks(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=100_000, bucket_bytes=1 << 20)

    def request_yield() -> None:
        wait_until(lambda: any(event.get("step") == 5 for event in events(phones[0], spec)))
        (phones[0].run_dir("run") / layout.YIELD_FILE).touch()

    requester = threading.Thread(target=request_yield)
    requester.start()
    assert train(phones, spec).returncode == 0
    requester.join()
    last = events(phones[0], spec)[-1]
    assert last["event"] == "yield"
    assert_line_rate_covers_own_steps(phones[0], spec)
    assert [max(client.held_steps(phone.run_dir("run"))).step for phone in phones] == [last["step"]] * 2


def request_after_step(phone: Phone, spec: RunSpec, step: int, name: str) -> threading.Thread:
    def request() -> None:
        wait_until(lambda: any(event.get("step") == step for event in events(phone, spec)))
        (phone.run_dir("run") / name).touch()

    requester = threading.Thread(target=request)
    requester.start()
    return requester


@pytest.mark.parametrize("local_steps", [1, 7])
def test_stopped_attempt_writes_a_checkpoint_of_its_last_step(phones: list[Phone], local_steps: int) -> None:
    spec = run_spec((4, 4), steps=100_000, bucket_bytes=1 << 20, local_steps=local_steps)
    requester = request_after_step(phones[0], spec, 5, layout.STOP_FILE)
    assert train(phones, spec).returncode == 0
    requester.join()
    last = events(phones[0], spec)[-1]
    assert last["event"] == "stop"
    written = [safetensors.read(phone.run_dir("run") / layout.checkpoint_file(last["step"])) for phone in phones]
    for name, tensor in written[0].tensors.items():
        if not name.startswith("optimizer.") or local_steps == 1:
            np.testing.assert_array_equal(tensor, written[1].tensors[name], name)
    assert [max(client.held_steps(phone.run_dir("run"))).step for phone in phones] == [last["step"]] * 2


def test_checkpoint_by_time(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=100_000, bucket_bytes=1 << 20, checkpoint_minutes=1e-4)
    requester = request_after_step(phones[0], spec, 40, layout.YIELD_FILE)
    assert train(phones, spec).returncode == 0
    requester.join()
    written = [event["step"] for event in events(phones[0], spec) if event["event"] == "checkpoint"]
    assert len(written) > 1
    assert written == sorted(set(written))


@pytest.mark.parametrize("wire", ["fp32", "int8"])
def test_checkpoint_from_memory_is_the_one_that_ranks_write(phones: list[Phone], wire: str) -> None:
    """LeNet has no running statistics, so they are equal to the last bit."""
    spec = run_spec((4, 4), steps=100_000, bucket_bytes=1 << 20, wire=wire)
    requester = request_after_step(phones[0], spec, 5, layout.STOP_FILE)
    assert train(phones, spec).returncode == 0
    requester.join()
    path = phones[1].run_dir("run") / layout.checkpoint_file(events(phones[0], spec)[-1]["step"])
    by_ranks = safetensors.read(path)
    path.unlink()
    reply = json.loads(phones[1].agent("write-checkpoint", "run").stdout)
    assert (reply["file"], reply["bytes"]) == (path.name, path.stat().st_size)
    from_memory = safetensors.read(path)
    assert from_memory.metadata == by_ranks.metadata
    assert list(from_memory.tensors) == list(by_ranks.tensors)
    for name, tensor in by_ranks.tensors.items():
        np.testing.assert_array_equal(tensor, from_memory.tensors[name], name)
    client.stop_server(phones[1].run_dir("run"))
    assert phones[1].agent("write-checkpoint", "run").returncode == 1


def test_checkpoint_from_memory_has_the_running_statistics_of_its_phone(phones: list[Phone]) -> None:
    colored = replace(SYNTHETIC, shape=(32, 32, 3))
    spec = replace(run_spec((4, 4), steps=100_000, data=colored), model="resnet20")
    requester = request_after_step(phones[0], spec, 3, layout.STOP_FILE)
    assert train(phones, spec).returncode == 0
    requester.join()
    path = phones[1].run_dir("run") / layout.checkpoint_file(events(phones[0], spec)[-1]["step"])
    by_ranks = safetensors.read(path)
    assert phones[1].agent("write-checkpoint", "run").returncode == 0
    from_memory = safetensors.read(path)
    differing = [
        name for name, tensor in by_ranks.tensors.items() if not np.array_equal(tensor, from_memory.tensors[name])
    ]
    assert differing
    assert all(".running_" in name for name in differing)


def test_checkpoint_from_memory_after_a_kill_holds_every_reported_step(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=100_000, bucket_bytes=1 << 20)
    train_and_kill(phones, spec, 20, 1)
    reported = max(event["step"] for event in events(phones[0], spec) if event["event"] == "step")
    reply = json.loads(phones[0].agent("write-checkpoint", "run").stdout)
    assert reported <= reply["step"] <= reported + 1


def test_new_run_frees_the_state_of_an_old_one(phones: list[Phone]) -> None:
    spec = run_spec((4,), steps=100_000)
    train_and_kill(phones[:1], spec, 3, 0)
    assert client.held_steps(phones[0].run_dir("run"))
    assert train(phones[:1], run_spec((4,), run_id="next", steps=2)).returncode == 0
    assert client.held_steps(phones[0].run_dir("run")) == []


def test_cleanup_ends_the_rank_and_reports_held_steps(phones: list[Phone]) -> None:
    run = f"run-{os.getpid()}"  # processes are found by the run id, so it must be unique on this computer
    spec = run_spec((4,), run_id=run, steps=1_000_000)
    stage(phones[:1], spec)
    with subprocess.Popen([sys.executable, "-m", "phone_agent", "train", run], env=phones[0].env) as rank:
        wait_until(lambda: any(event["event"] == "step" for event in events(phones[0], spec)))
        reply = json.loads(phones[0].agent("cleanup", run).stdout)
        assert rank.wait() == -signal.SIGTERM
    assert reply["processes_ended"] == 1
    assert reply["held_steps"]
    again = json.loads(phones[0].agent("cleanup", run, "--discard-state").stdout)
    assert (again["processes_ended"], again["held_steps"], again["attempt"]) == (0, [], 0)
    assert again["disk_mb"] > 0
    assert json.loads(phones[0].agent("cleanup", "no-such-run").stdout)["processes_ended"] == 0
