"""Core selection. Times are injected: no test depends on a clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phone_agent import models
from phone_agent.comm.world import SingleProcessWorld
from phone_agent.contract import layout
from phone_agent.contract.schema import DeviceConfig, RunSpec
from phone_agent.device import affinity, memory
from phone_agent.device.affinity import CoreSet
from phone_agent.device.system import SystemPaths
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import MemoryPlan, estimate_memory
from phone_agent.nn.plan.options import Options
from phone_agent.train.builder import TrainerBuilder
from phone_agent.train.core_selection import fastest, select_core_set
from tests.phone_agent.phones import Phone, run_spec

BIG, ALL = CoreSet((4, 5, 6, 7)), CoreSet((0, 1, 2, 4, 5, 6, 7))


def roots_with(tmp_path: Path, capacities: dict[int, int], allowed: str) -> SystemPaths:
    paths = SystemPaths(sys=tmp_path, proc=tmp_path)
    for core, capacity in capacities.items():
        (paths.cpus / f"cpu{core}").mkdir(parents=True)
        (paths.cpus / f"cpu{core}" / "cpu_capacity").write_text(str(capacity))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Cpus_allowed_list:\t{allowed}\n")
    return paths


@pytest.mark.parametrize(
    ("little", "allowed", "core_sets"),
    [(4, "0-2,4-7", [BIG, ALL]), (4, "0-2", [CoreSet((0, 1, 2))]), (0, "0-7", [CoreSet(tuple(range(8)))])],
)
def test_core_sets_differ_only_with_little_cores(
    tmp_path: Path, little: int, allowed: str, core_sets: list[CoreSet]
) -> None:
    paths = roots_with(tmp_path, {core: 379 if core < little else 1024 for core in range(8)}, allowed)
    assert affinity.core_sets(paths) == core_sets


@pytest.mark.parametrize(("times", "wanted"), [((1.0, 0.8), ALL), ((1.0, 0.95), BIG), ((1.0, 2.0), BIG)])
def test_more_cores_must_be_clearly_faster(times: tuple[float, float], wanted: CoreSet) -> None:
    measured = dict(zip((BIG, ALL), times, strict=True))
    assert fastest([BIG, ALL], measured.__getitem__, lambda: True) == wanted


def test_without_time_the_big_cores_are_selected() -> None:
    assert fastest([BIG, ALL], {BIG: 1.0}.__getitem__, lambda: False) == BIG


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_measuring_restores_the_state_and_pins_the_selected_cores() -> None:
    """In a thread of its own, because affinity belongs to a thread."""
    graph = models.build("resnet20", 10, (32, 32, 3))
    state, before = State(graph, 1), State(graph, 1)
    first, second = sorted(os.sched_getaffinity(0))[:2]

    def computing() -> tuple[CoreSet, set[int]]:
        chosen = select_core_set([CoreSet((first,)), CoreSet((first, second))], graph, state, 4, Options())
        return chosen, os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as other:
        chosen, cores = other.submit(computing).result(60)
    assert cores == set(chosen.cores)
    for name in ("values", "statistics", "gradients"):
        np.testing.assert_array_equal(getattr(state, name), getattr(before, name))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_core_set_that_needs_too_much_memory_is_not_selected() -> None:
    graph = models.build("resnet20", 10, (32, 32, 3))
    one, many = CoreSet(tuple(sorted(os.sched_getaffinity(0))[:1])), CoreSet(tuple(range(32)))
    budget = estimate_memory(graph, 1, Options()).total
    with ThreadPoolExecutor(1) as other:
        assert (
            other.submit(select_core_set, [one, many], graph, State(graph, 1), 1, Options(memory_bytes=budget)).result()
            == one
        )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_memory_plan_is_not_affected_by_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After core selection memory is planned again; by then gradients occupy memory that was available before."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    monkeypatch.setattr(affinity, "core_sets", lambda: [CoreSet((first,)), CoreSet((first, second))])
    available = iter([1_000_000, 1])
    monkeypatch.setattr(memory, "available_mb", lambda: next(available))

    def planned() -> tuple[int, MemoryPlan | None]:
        trainer = TrainerBuilder(
            tmp_path, run_spec((4,), threads=0), 1, SingleProcessWorld(), lambda *_: None, pytest.fail
        ).build()
        trainer.close()
        return trainer.compute.capacity, trainer.compute.memory

    with ThreadPoolExecutor(1) as other:
        at_once, plan = other.submit(planned).result(60)
    assert at_once == 4
    assert plan is not None


# ------------------------------------------------------- in a process of its own: the kernel tells of its main thread

TWO_KINDS = """
import json, os, sys
from phone_agent.device import affinity, cpu
little, big = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, {little, big})
cpu.big_cores = lambda *_: (big,)  # pretend that there are two kinds of cores
"""
PINNED = """
threads = affinity.pin_to_big_cores(int(sys.argv[1]))
cores, core_sets = os.sched_getaffinity(0), [core_set.cores for core_set in affinity.core_sets()]
again = affinity.pin_to_big_cores(), os.sched_getaffinity(0)
affinity.pin_to_little_cores()
names = {little: "little", big: "big"}
named = lambda cores: [names[core] for core in sorted(cores)]
print(json.dumps([threads, named(cores), [*map(named, core_sets)], named(again[1]), named(os.sched_getaffinity(0))]))
"""
TRAINS = """
import logging
from phone_agent import __main__ as agent
from phone_agent.train import core_selection, rank
core_selection.BUDGET_S = 1e9
if sys.argv[1] == "asked":
    rank.run = lambda directory, spec, threads: print(threads, len(os.sched_getaffinity(0))) or 0
sys.argv[1:] = ["train", "run"]
sys.exit(agent.main())
"""


def in_a_process(phone: Phone, script: str, *arguments: str) -> str:
    argv = [sys.executable, "-c", TWO_KINDS + script, *arguments]
    done = subprocess.run(argv, env=phone.env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def phone(tmp_path: Path) -> Phone:
    return Phone(tmp_path)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
@pytest.mark.parametrize(("asked", "threads", "cores"), [(0, 1, ["big"]), (1, 1, ["big"]), (2, 2, ["little", "big"])])
def test_pinned_process_knows_all_cores(phone: Phone, asked: int, threads: int, cores: list[str]) -> None:
    found = json.loads(in_a_process(phone, PINNED, str(asked)))
    assert found == [threads, cores, [["big"], ["little", "big"]], ["big"], ["little"]]


def staged(phone: Phone, **changes: Any) -> RunSpec:
    spec = run_spec((4,), steps=2, **changes)
    phone.stage(spec)
    return spec


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
@pytest.mark.parametrize(
    ("changes", "threads", "cores"),
    [
        ({"threads": 0}, 1, 1),
        ({"threads": 2}, 2, 2),
        ({"threads": 0, "devices": {"p1-01": DeviceConfig("cpu", 2, little_cores=True)}}, 2, 2),
    ],
)
def test_rank_has_a_core_per_requested_thread(phone: Phone, changes: dict[str, Any], threads: int, cores: int) -> None:
    staged(phone, **changes)
    assert in_a_process(phone, TRAINS, "asked").split() == [str(threads), str(cores)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_rank_measures_little_cores_if_threads_are_not_given(phone: Phone) -> None:
    spec = staged(phone, threads=0)
    in_a_process(phone, TRAINS, "tried")
    little, big = sorted(os.sched_getaffinity(0))[:2]
    log = (phone.run_dir(spec.run_id) / layout.RANK_LOG).read_text()
    assert f"1 threads on cores {big}: " in log
    assert f"2 threads on cores {little},{big}: " in log
