"""A rank may be killed at any moment: what it had committed is still there, and training goes on as if nothing was."""

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
from phone_agent.contract.schema import DeviceConfig, OptimizerSpec, RunSpec
from phone_agent.device import memory as device_memory
from phone_agent.memckpt import client, memfd, replica
from phone_agent.memckpt.elect_step import Agreed, agree
from phone_agent.memckpt.header import Mark
from phone_agent.memckpt.rank_state import Kept, NotKept
from phone_agent.memckpt.server import keep
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory import MemoryPlan
from phone_agent.train.builder import build
from phone_agent.train.device_config import living
from phone_agent.train.loop import Updates
from phone_agent.train.memory_budget import held
from phone_agent.train.resume import open_kept
from tests.phone_agent.phones import AGENT, SYNTHETIC, Phone, attempt, forget, make_phones, run_spec

A, B = Mark(0, 49), Mark(0, 50)


@pytest.mark.parametrize(
    ("held", "agreed"),
    [
        ([[], []], None),
        ([[A, B], [A, B]], Agreed(B, (0, 1))),
        ([[A, B], [A]], Agreed(A, (0, 1))),  # the second was killed while it wrote B
        ([[A, B], []], Agreed(B, (0,))),  # a new phone
        ([[], [A, B], [B]], Agreed(B, (1, 2))),
        ([[Mark(0, 12), Mark(0, 13)], [A, B]], Agreed(B, (1,))),  # back after a long time
        ([[Mark(0, 60)], [Mark(1, 50), Mark(0, 49)]], Agreed(Mark(1, 50), (1,))),  # what it holds was given up
    ],
)
def test_all_find_the_newest_step_that_nobody_lost(held: list[list[Mark]], agreed: Agreed | None) -> None:
    assert agree(held) == agreed


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Path]:
    """A run's directory whose path is longer than a socket's may be, and somebody who holds its state."""
    run = tmp_path / ("x" * 120)
    run.mkdir()
    holder = threading.Thread(target=keep, args=(run,))
    holder.start()
    until(lambda: client.listens(run))
    yield run
    client.end(run)
    holder.join()


def until(condition: Callable[[], Any], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.01)


def like(value: float = 0.0) -> dict[str, Any]:
    return {"values": np.full(5000, value, np.float32), "statistics": np.full(3, value, np.float32)}


LIVING = ("values",)


def opened(run: Path, like: dict[str, Any]) -> tuple[client.Keeper, replica.Copies]:
    keeper = client.Keeper(run)
    descriptor, kind = keeper.open(replica.signature(like, LIVING), replica.size(like))
    kept = replica.Copies(descriptor, like, LIVING)
    os.close(descriptor)
    assert kind == "memory"
    return keeper, kept


def step(kept: replica.Copies, number: int) -> None:
    kept.live["values"][...] = number
    kept.commit(Mark(0, number), like(float(number)))
    kept.follow(Mark(0, number))


def test_memory_outlives_whoever_wrote_it(keeping: Path) -> None:
    first, kept = opened(keeping, like())
    step(kept, 1)
    step(kept, 2)
    kept.commit(Mark(0, 3), like(3.0))
    first.close()
    assert client.held(keeping) == [Mark(0, 2), Mark(0, 3)]
    second, kept = opened(keeping, like())
    found = like()
    kept.secure(Mark(0, 2))
    kept.read(Mark(0, 2), found)
    assert all((buffer == 2).all() for buffer in (found["statistics"], kept.live["values"]))
    second.close()


def test_a_step_that_was_not_committed_as_a_whole_is_none(keeping: Path) -> None:
    keeper, kept = opened(keeping, like())
    step(kept, 1)
    with pytest.raises(KeyError):
        kept.commit(Mark(0, 2), {"values": like()["values"]})
    assert kept.held() == [Mark(0, 1)]
    keeper.close()


def test_memory_of_another_shape_is_not_taken_for_ours(keeping: Path) -> None:
    keeper, kept = opened(keeping, like())
    step(kept, 1)
    another, other = opened(keeping, {"values": like()["values"]})
    assert other.held() == []
    keeper.close()
    another.close()


def test_what_is_live_starts_on_a_page(keeping: Path) -> None:
    """The core reads aligned memory."""
    odd = {name: np.zeros(size, np.float32) for name, size in (("statistics", 3), ("values", 1025), ("momenta", 1))}
    keeper = client.Keeper(keeping)
    descriptor, _ = keeper.open(replica.signature(odd, odd), replica.size(odd))
    kept = replica.Copies(descriptor, odd, odd)
    os.close(descriptor)
    assert {view.ctypes.data % 4096 for view in kept.live.values()} == {0}
    keeper.close()


def test_what_is_live_outlives_whoever_holds_it(keeping: Path) -> None:
    """A run that is done is judged and saved still."""
    keeper, kept = opened(keeping, like())
    kept.live["values"][...] = 7
    client.end(keeping)
    keeper.close()
    kept.live["values"][0] = 8
    assert kept.live["values"].sum() == 7 * 4999 + 8


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
@pytest.mark.parametrize("method", ["sgd", "lamb"])
@pytest.mark.parametrize(("wire", "local_steps", "outer_momentum"), [("fp32", 1, 0), ("int8", 1, 0), ("int8", 4, 0.5)])
def test_the_memory_it_takes_is_what_is_planned(
    keeping: Path, backend: str, method: str, wire: str, local_steps: int, outer_momentum: float
) -> None:
    rules, lives = OptimizerSpec(method), living(backend)
    spec = run_spec((4,), optimizer=rules, local_steps=local_steps, outer_momentum=outer_momentum)
    state = State(models.build("lenet", 10, SYNTHETIC.shape), 0)
    summing = {"residuals": state.gradients} if wire == "int8" else {}
    kept = open_kept(keeping, spec, state, summing, lives, SingleProcessWorld(), pytest.fail)
    held_elsewhere = client.ask(keeping, "held")["bytes"] - sum(buffer.nbytes for buffer in kept.live.values())
    planned = held(rules, wire, local_steps, outer_momentum, lives) * state.values.nbytes
    assert planned <= held_elsewhere < 1.02 * planned + 65536
    kept.forget()


def test_what_it_takes_of_the_phone_is_what_was_written(keeping: Path) -> None:
    """Pages are taken as they are written: before that, the phone has them available still."""
    assert client.taken(keeping) == 0
    keeper, kept = opened(keeping, like())
    before = client.taken(keeping)
    step(kept, 1)
    step(kept, 2)
    assert before < client.taken(keeping) == replica.size(like())
    keeper.close()


def test_what_it_takes_in_a_file_the_phone_has_available_still(monkeypatch: pytest.MonkeyPatch, keeping: Path) -> None:
    monkeypatch.setattr(memfd, "_memfd", lambda _: -1)
    keeper = client.Keeper(keeping)
    descriptor, kind = keeper.open(replica.signature(like(), ()), replica.size(like()))
    step(replica.Copies(descriptor, like(), LIVING), 1)
    os.close(descriptor)
    assert (kind, client.taken(keeping)) == ("file", 0)
    keeper.close()


def test_nobody_takes_nothing(tmp_path: Path) -> None:
    assert client.taken(tmp_path) == 0


def test_a_later_attempt_plans_as_the_first_although_what_is_held_is_not_available_any_more(
    monkeypatch: pytest.MonkeyPatch, keeping: Path
) -> None:
    spec = run_spec((64,), steps=2)

    def planned(attempt: int, available_mb: int) -> MemoryPlan | None:
        monkeypatch.setattr(device_memory, "available_mb", lambda: available_mb)
        there = replace(spec, attempt=attempt)
        training = build(keeping, there, 1, SingleProcessWorld(), lambda *_: None, warn=pytest.fail, keep=True)
        for _ in training.loop.run(training.resumed.step + 1, 2):
            training.overlap.settle()
        training.close()
        assert isinstance(training.resumed.keep, Kept)
        training.resumed.keep._keeper.close()  # as when the process ends
        return training.memory

    lean = planned(0, 1_000_000)
    assert lean is not None
    enough = -(-(lean.total - lean.process) // 600_000)
    taken = client.taken(keeping)
    assert taken > lean.values + lean.gradients
    assert planned(1, enough - taken // 1_000_000) == lean


def test_the_state_lives_in_the_memory_and_what_it_starts_from_is_there(keeping: Path) -> None:
    state = State(models.build("lenet", 10, SYNTHETIC.shape), 3)
    start = state.values.copy()
    kept = open_kept(keeping, run_spec((4,)), state, {}, living("cpu"), SingleProcessWorld(), pytest.fail)
    assert np.shares_memory(state.values, kept.live["values"])
    assert np.shares_memory(state.momenta, kept.live["momenta"])
    np.testing.assert_array_equal(state.values, start)
    kept.forget()


def test_in_a_file_nothing_lives(monkeypatch: pytest.MonkeyPatch, keeping: Path) -> None:
    """It would be written to the flash at every step."""
    monkeypatch.setattr(memfd, "_memfd", lambda _: -1)
    told: list[str] = []
    training = build(
        keeping, run_spec((4,), steps=2), 1, SingleProcessWorld(), lambda *_: None, warn=told.append, keep=True
    )
    assert isinstance(training.resumed.keep, Kept)
    assert training.resumed.keep.live == {}
    assert [message.split(":")[0] for message in told] == ["no anonymous memory here"]
    for _ in training.loop.run(1, 2):
        training.overlap.settle()
    assert client.held(keeping) == [Mark(0, 2)]
    training.close()
    training.resumed.keep.forget()


def test_a_step_is_committed_before_ranks_tell_each_other_and_followed_after() -> None:
    """Before, so that whoever hears of it knows that all have it; after, as nobody knows that before."""
    did: list[str] = []

    class Writes(NotKept):
        def commit(self, step: int) -> None:
            did.append(f"commit {step}")

        def follow(self, step: int) -> None:
            did.append(f"follow {step}")

    nothing: Any = None
    tell = lambda step, _: did.append(f"tell {step}")  # noqa: E731 - as short as what it stands for
    Updates(nothing, nothing, nothing, nothing, nothing, tell, Writes()).exchange(5, nothing)
    assert did == ["commit 5", "tell 5", "follow 5"]


def test_nobody_else_may_ask(keeping: Path) -> None:
    assert (keeping / layout.MEMCKPT_SOCKET).stat().st_mode & 0o777 == 0o600


def test_only_one_holds_a_run(keeping: Path) -> None:
    assert keep(keeping) is False


def test_rubbish_does_not_end_it(keeping: Path) -> None:
    for rubbish in (b"{", b"[]", b'{"verb": "open"}', b"\xff" * 100, b"7"):
        with client.connected(keeping) as stranger:
            stranger.sendall(rubbish)
    assert client.held(keeping) == []


def test_it_leaves_when_nobody_comes_back(tmp_path: Path) -> None:
    assert keep(tmp_path, idle_s=0.05) is True
    assert not (tmp_path / layout.MEMCKPT_SOCKET).exists()


# ------------------------------------------------------------------------------------------------- with real ranks


@pytest.fixture
def phones(tmp_path: Path) -> Iterator[list[Phone]]:
    made = make_phones(tmp_path, 2)
    yield made
    forget(made)


def staged(phones: Sequence[Phone], spec: RunSpec) -> None:
    for phone in phones:
        directory = phone.home / layout.attempt_dir(spec.run_id, spec.attempt)
        directory.mkdir(parents=True)
        (directory / layout.RUN_FILE).write_text(spec.to_json())


def train(phones: Sequence[Phone], spec: RunSpec) -> subprocess.CompletedProcess[str]:
    staged(phones, spec)
    return attempt(phones, *AGENT, "train", spec.run_id, "--attempt", str(spec.attempt))


def events(phone: Phone, spec: RunSpec) -> list[dict[str, Any]]:
    path = phone.home / layout.attempt_dir(spec.run_id, spec.attempt) / layout.EVENTS_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def killed_at(phones: Sequence[Phone], spec: RunSpec, step: int, victim: int) -> None:
    """Trains until that step was announced, and then kills a rank."""

    def strike() -> None:
        until(lambda: any(event.get("step") == step for event in events(phones[0], spec)))
        start = phones[victim].home / layout.attempt_dir(spec.run_id, spec.attempt) / layout.RANK_EVENTS_FILE
        os.kill(json.loads(start.read_text().splitlines()[0])["pid"], signal.SIGKILL)

    striker = threading.Thread(target=strike)
    striker.start()
    assert train(phones, spec).returncode != 0
    striker.join()


def weights(phone: Phone, spec: RunSpec) -> dict[str, Any]:
    content = safetensors.read(phone.run_dir(spec.run_id) / layout.checkpoint_file(spec.steps))
    return content.tensors


def assert_its_own_steps_count(phone: Phone, spec: RunSpec) -> None:
    """How well gradients travelled is said of the steps of this attempt, not of all the run's."""
    told = events(phone, spec)
    limit_s = next(event["limit_s"] for event in told if event["event"] == "comm_plan")
    in_full = uncompressed_steps(spec.steps) if spec.communication.wire == "powersgd" else 0
    taken = [event["reduce_s"] for event in told if event["event"] == "step" and event["step"] > in_full]
    share = None if spec.communication.local_steps > 1 or limit_s is None else pytest.approx(limit_s / np.mean(taken))
    assert told[-1]["line_rate_fraction"] == share


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
def test_a_killed_rank_changes_no_bit_of_the_result(phones: list[Phone], victim: int, changes: dict[str, Any]) -> None:
    fields = {"steps": STEPS, "bucket_bytes": 1 << 20, "load_balancing": "off", **changes}
    model = fields.pop("model", "lenet")
    spec = replace(run_spec((4, 3), **fields), model=model)
    undisturbed = replace(spec, run_id="undisturbed")
    assert train(phones, undisturbed).returncode == 0
    killed_at(phones, spec, 20, victim)
    announced = max(event["step"] for event in events(phones[0], spec) if event["event"] == "step")
    again = replace(spec, attempt=1)
    assert train(phones, again).returncode == 0
    start = events(phones[0], again)[0]
    assert (start["resumed_from"], start["attempt"], start["backend"]) == ("memory", 1, changes.get("backend", "cpu"))
    assert announced <= start["resumed"] <= announced + 1
    assert_its_own_steps_count(phones[0], again)
    expected, found = weights(phones[0], undisturbed), weights(phones[0], again)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert all(client.held(phone.run_dir("run")) == [] for phone in phones), "nothing is held of what is done"


def test_a_phone_that_holds_nothing_gets_it_from_another(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=STEPS, bucket_bytes=1 << 20, load_balancing="off")
    killed_at(phones, spec, 20, 1)
    client.end(phones[0].run_dir("run"))
    again = replace(spec, attempt=1, steps=STEPS)
    assert train(phones, again).returncode == 0
    assert events(phones[0], again)[0]["resumed"] >= 20


@pytest.mark.parametrize("wire", ["int8", pytest.param("powersgd", marks=pytest.mark.slow)])
def test_one_phone_goes_on_from_what_two_hold_and_two_from_what_it_holds(phones: list[Phone], wire: str) -> None:
    both = run_spec((4, 3), steps=600, bucket_bytes=1 << 20, load_balancing="off", wire=wire)
    alone = replace(run_spec((7,), steps=600, bucket_bytes=1 << 20, load_balancing="off", wire=wire), attempt=1)
    killed_at(phones, both, 80, 1)
    killed_at(phones[:1], alone, 160, 0)
    killed_at(phones, again := replace(both, attempt=2), 240, 1)
    for before, after in ((both, alone), (alone, again)):
        announced = max(event["step"] for event in events(phones[0], before) if event["event"] == "step")
        start = events(phones[0], after)[0]
        assert start["resumed_from"] == "memory"
        assert announced <= start["resumed"] <= announced + 1


def test_an_attempt_that_is_asked_to_ends_after_the_same_step_everywhere(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=100_000, bucket_bytes=1 << 20)

    def ask() -> None:
        until(lambda: any(event.get("step") == 5 for event in events(phones[0], spec)))
        (phones[0].run_dir("run") / layout.YIELD_FILE).touch()

    asking = threading.Thread(target=ask)
    asking.start()
    assert train(phones, spec).returncode == 0
    asking.join()
    last = events(phones[0], spec)[-1]
    assert last["event"] == "yield"
    assert_its_own_steps_count(phones[0], spec)
    assert [max(client.held(phone.run_dir("run"))).step for phone in phones] == [last["step"]] * 2


def test_a_new_runs_ranks_free_what_an_old_one_left(phones: list[Phone]) -> None:
    spec = run_spec((4,), steps=100_000)
    killed_at(phones[:1], spec, 3, 0)
    assert client.held(phones[0].run_dir("run"))
    assert train(phones[:1], run_spec((4,), run_id="next", steps=2)).returncode == 0
    assert client.held(phones[0].run_dir("run")) == []


def test_ending_a_run_ends_its_rank_and_tells_what_is_held(phones: list[Phone]) -> None:
    run = f"run-{os.getpid()}"  # its processes are found by its name: nobody else's on this computer may have it
    spec = run_spec((4,), run_id=run, steps=1_000_000)
    staged(phones[:1], spec)
    with subprocess.Popen([sys.executable, "-m", "phone_agent", "train", run], env=phones[0].env) as rank:
        until(lambda: any(event["event"] == "step" for event in events(phones[0], spec)))
        told = json.loads(phones[0].agent("cleanup", run).stdout)
        assert rank.wait() == -signal.SIGTERM
    assert told["processes_ended"] == 1
    assert told["held_steps"]
    again = json.loads(phones[0].agent("cleanup", run, "--discard-state").stdout)
    assert (again["processes_ended"], again["held_steps"], again["attempt"]) == (0, [], 0)
    assert again["disk_mb"] > 0
    assert json.loads(phones[0].agent("cleanup", "no-such-run").stdout)["processes_ended"] == 0
