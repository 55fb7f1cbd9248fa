"""Which cores compute. What is faster is injected: no test depends on a clock."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from phone_agent import models
from phone_agent.device import affinity
from phone_agent.device.affinity import Crew
from phone_agent.device.roots import Roots
from phone_agent.nn.backends import Options
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory import estimate
from phone_agent.train.crew import choose, fastest

BIG, ALL = Crew((4, 5, 6, 7)), Crew((0, 1, 2, 4, 5, 6, 7))


def roots_with(tmp_path: Path, capacities: dict[int, int], allowed: str) -> Roots:
    roots = Roots(sys=tmp_path, proc=tmp_path)
    for core, capacity in capacities.items():
        (roots.cpus / f"cpu{core}").mkdir(parents=True)
        (roots.cpus / f"cpu{core}" / "cpu_capacity").write_text(str(capacity))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Cpus_allowed_list:\t{allowed}\n")
    return roots


@pytest.mark.parametrize(
    ("little", "allowed", "crews"),
    [(4, "0-2,4-7", [BIG, ALL]), (4, "0-2", [Crew((0, 1, 2))]), (0, "0-7", [Crew(tuple(range(8)))])],
)
def test_only_where_there_are_little_cores_there_is_a_choice(
    tmp_path: Path, little: int, allowed: str, crews: list[Crew]
) -> None:
    roots = roots_with(tmp_path, {core: 379 if core < little else 1024 for core in range(8)}, allowed)
    assert affinity.crews(roots) == crews


@pytest.mark.parametrize(("times", "wanted"), [((1.0, 0.8), ALL), ((1.0, 0.95), BIG), ((1.0, 2.0), BIG)])
def test_more_cores_must_be_worth_their_heat(times: tuple[float, float], wanted: Crew) -> None:
    measured = dict(zip((BIG, ALL), times, strict=True))
    assert fastest([BIG, ALL], measured.__getitem__, lambda: True) == wanted


def test_no_time_is_no_choice() -> None:
    assert fastest([BIG, ALL], {BIG: 1.0}.__getitem__, lambda: False) == BIG


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_trying_leaves_the_state_as_it_was_and_the_thread_on_the_chosen_cores() -> None:
    """In a thread of its own: cores are a thread's."""
    graph = models.build("resnet20", 10, (32, 32, 3))
    state, before = State(graph, 1), State(graph, 1)
    first, second = sorted(os.sched_getaffinity(0))[:2]

    def computing() -> tuple[Crew, set[int]]:
        chosen = choose([Crew((first,)), Crew((first, second))], graph, state, 4, Options())
        return chosen, os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as other:
        chosen, cores = other.submit(computing).result(60)
    assert cores == set(chosen.cores)
    for name in ("values", "statistics", "gradients"):
        np.testing.assert_array_equal(getattr(state, name), getattr(before, name))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_a_crew_that_takes_too_much_memory_is_not_chosen() -> None:
    graph = models.build("resnet20", 10, (32, 32, 3))
    one, many = Crew(tuple(sorted(os.sched_getaffinity(0))[:1])), Crew(tuple(range(32)))
    budget = estimate(graph, 1, Options()).total
    with ThreadPoolExecutor(1) as other:
        assert (
            other.submit(choose, [one, many], graph, State(graph, 1), 1, Options(memory_bytes=budget)).result() == one
        )
