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

from phone_agent import layout, safetensors
from phone_agent.keep import client, slots
from phone_agent.keep.agree import Agreed, agree
from phone_agent.keep.header import Mark
from phone_agent.keep.keeper import keep
from phone_agent.schema import RunSpec
from tests.agent.phones import AGENT, Phone, attempt, forget, make_phones, run_spec

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


def opened(run: Path, buffers: dict[str, Any]) -> tuple[client.Keeper, slots.Slots]:
    keeper = client.Keeper(run)
    descriptor, kind = keeper.open(slots.signature(buffers), slots.size(buffers))
    memory = slots.Slots(descriptor, buffers)
    os.close(descriptor)
    assert kind == "memory"
    return keeper, memory


def test_memory_outlives_whoever_wrote_it(keeping: Path) -> None:
    first, memory = opened(keeping, like())
    for step in (1, 2, 3):
        memory.write(Mark(0, step), like(float(step)))
    first.close()
    assert client.held(keeping) == [Mark(0, 2), Mark(0, 3)]
    second, memory = opened(keeping, like())
    found = like()
    memory.read(Mark(0, 2), found)
    assert all((buffer == 2).all() for buffer in found.values())
    second.close()


def test_a_copy_that_was_not_finished_is_none(keeping: Path) -> None:
    keeper, memory = opened(keeping, like())
    memory.write(Mark(0, 1), like(1.0))
    with pytest.raises(KeyError):
        memory.write(Mark(0, 2), {"values": like()["values"]})
    assert memory.held() == [Mark(0, 1)]
    keeper.close()


def test_memory_of_another_shape_is_not_taken_for_ours(keeping: Path) -> None:
    keeper, memory = opened(keeping, like())
    memory.write(Mark(0, 1), like(1.0))
    another, other = opened(keeping, {"values": like()["values"]})
    assert other.held() == []
    keeper.close()
    another.close()


def test_nobody_else_may_ask(keeping: Path) -> None:
    assert (keeping / layout.KEEPER_SOCKET).stat().st_mode & 0o777 == 0o600


def test_only_one_holds_a_run(keeping: Path) -> None:
    assert keep(keeping) is False


def test_rubbish_does_not_end_it(keeping: Path) -> None:
    for rubbish in (b"{", b"[]", b'{"verb": "open"}', b"\xff" * 100, b"7"):
        with client.connected(keeping) as stranger:
            stranger.sendall(rubbish)
    assert client.held(keeping) == []


def test_it_leaves_when_nobody_comes_back(tmp_path: Path) -> None:
    assert keep(tmp_path, idle_s=0.05) is True
    assert not (tmp_path / layout.KEEPER_SOCKET).exists()


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
        start = phones[victim].run_dir(spec.run_id) / layout.RANK_EVENTS_FILE
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
    limit_s = next(event["limit_s"] for event in told if event["event"] == "choice")
    taken = [event["reduce_s"] for event in told if event["event"] == "step"]
    share = None if spec.local_steps > 1 or limit_s is None else pytest.approx(limit_s / np.mean(taken))
    assert told[-1]["line_rate_share"] == share


STEPS = 120


@pytest.mark.parametrize(
    ("victim", "changes"),
    [
        (1, {}),
        pytest.param(0, {"model": "resnet20", "steps": 40}, marks=pytest.mark.slow),
        pytest.param(1, {"wire": "int8"}, marks=pytest.mark.slow),
        pytest.param(0, {"wire": "powersgd"}, marks=pytest.mark.slow),
        pytest.param(0, {"local_steps": 7, "outer_momentum": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_changes_no_bit_of_the_result(phones: list[Phone], victim: int, changes: dict[str, Any]) -> None:
    fields = {"steps": STEPS, "bucket_bytes": 1 << 20, "balance": "off", **changes}
    model = fields.pop("model", "lenet")
    spec = replace(run_spec((4, 3), **fields), model=model)
    undisturbed = replace(spec, run_id="undisturbed")
    assert train(phones, undisturbed).returncode == 0
    killed_at(phones, spec, 20, victim)
    announced = max(event["step"] for event in events(phones[0], spec) if event["event"] == "step")
    again = replace(spec, attempt=1)
    assert train(phones, again).returncode == 0
    start = events(phones[0], again)[0]
    assert (start["resumed_from"], start["attempt"]) == ("memory", 1)
    assert announced <= start["resumed"] <= announced + 1
    assert_its_own_steps_count(phones[0], again)
    expected, found = weights(phones[0], undisturbed), weights(phones[0], again)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert all(client.held(phone.run_dir("run")) == [] for phone in phones), "nothing is held of what is done"


def test_a_phone_that_holds_nothing_gets_it_from_another(phones: list[Phone]) -> None:
    spec = run_spec((4, 4), steps=STEPS, bucket_bytes=1 << 20, balance="off")
    killed_at(phones, spec, 20, 1)
    client.end(phones[0].run_dir("run"))
    again = replace(spec, attempt=1, steps=STEPS)
    assert train(phones, again).returncode == 0
    assert events(phones[0], again)[0]["resumed"] >= 20


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
    spec = run_spec((4,), steps=1_000_000)
    staged(phones[:1], spec)
    with subprocess.Popen([sys.executable, "-m", "phone_agent", "train", "run"], env=phones[0].env) as rank:
        until(lambda: any(event["event"] == "step" for event in events(phones[0], spec)))
        told = json.loads(phones[0].agent("end", "run").stdout)
        assert rank.wait() == -signal.SIGTERM
    assert told["ended"] == 1
    assert told["held"]
    again = json.loads(phones[0].agent("end", "run", "--forget").stdout)
    assert (again["ended"], again["held"], again["attempt"]) == (0, [], 0)
    assert again["disk_mb"] > 0
    assert json.loads(phones[0].agent("end", "no-such-run").stdout)["ended"] == 0
