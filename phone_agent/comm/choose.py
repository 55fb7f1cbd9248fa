"""Which way to sum the gradients, and in pieces of which size: a model of what each takes on this line. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from phone_agent.comm.probe import Line
from phone_agent.comm.wire import WIRES
from phone_agent.sizes import FLOAT

BUCKETS = tuple(1024 * 1024 * size for size in (4, 8, 16, 32))
DEFAULT_BUCKET = BUCKETS[0]  # not smaller: ranks wait for each other at each part
TOLERATED = 1.02  # of the shortest time, for smaller pieces: they leave sooner, and what is urgent waits less for them
WORTH_A_CHANGE = 0.9  # of the time of what is plainer: predictions are not that exact
EVERY_WIRE = ("fp32", "fp16")  # from the plainest; formats that lose more are for people to choose
EVERY_ALGORITHM = ("ring", "hierarchical")  # those of ours, which know every wire


@dataclass(frozen=True)
class Wanted:
    """What a person fixed; `auto`, and 0 bytes, leave it to the model."""

    algorithm: str
    wire: str
    bucket_bytes: int


@dataclass(frozen=True)
class Choice:
    """Seconds an allreduce of all gradients takes by the model, and those the line allows; None: nobody to talk to, or
    a wire whose messages depend on the network; or, by the model, an algorithm that is MPI's."""

    algorithm: str
    wire: str
    bucket_bytes: int
    predicted_s: float | None = None
    limit_s: float | None = None


def choose(wanted: Wanted, line: Line | None, groups: Sequence[str], count: int) -> Choice:
    """For `count` gradients. What is more involved must be clearly faster."""
    algorithms = EVERY_ALGORITHM if wanted.algorithm == "auto" else (wanted.algorithm,)
    wires = _wires(wanted)
    if line is None:
        return Choice(algorithms[0], wires[0], wanted.bucket_bytes or DEFAULT_BUCKET)
    ways = [
        _best_bucket(algorithm, wire, wanted.bucket_bytes, partial(predict, line, groups, count))
        for wire, algorithm in product(wires, algorithms)
    ]
    chosen = ways[0]
    for each in ways[1:]:
        if _seconds(each) < WORTH_A_CHANGE * _seconds(chosen):
            chosen = each
    return replace(chosen, limit_s=limit_s(line, groups, chosen.algorithm, wire_bytes(chosen.wire, count)))


def _wires(wanted: Wanted) -> tuple[str, ...]:
    if wanted.wire != "auto":
        return (wanted.wire,)
    return EVERY_WIRE if wanted.algorithm in {*EVERY_ALGORITHM, "auto"} else EVERY_WIRE[:1]


def predict(  # noqa: PLR0917 - the line, then the way
    line: Line, groups: Sequence[str], count: int, algorithm: str, wire: str, bucket_bytes: int
) -> float | None:
    """Seconds for all pieces, one after the other."""
    total = wire_bytes(wire, count)
    if total is None or algorithm not in EVERY_ALGORITHM:
        return None
    pieces = max(1, round(count * FLOAT / bucket_bytes))
    one = _hierarchical if algorithm == "hierarchical" else _ring
    return pieces * one(line, groups, total / pieces)


def limit_s(line: Line, groups: Sequence[str], algorithm: str, total: int | None) -> float | None:
    """No such allreduce is faster on links of this rate: what each must carry at least, and nothing else."""
    if total is None:
        return None
    free = replace(line, latency_s=0.0)
    return _hierarchical(free, groups, total) if algorithm == "hierarchical" else _ring(free, groups, total)


def wire_bytes(wire: str, count: int) -> int | None:
    return WIRES[wire]().size(count) if wire in WIRES else None


def _best_bucket(algorithm: str, wire: str, given: int, seconds: Callable[[str, str, int], float | None]) -> Choice:
    sizes = (given,) if given else BUCKETS
    found = [Choice(algorithm, wire, size, seconds(algorithm, wire, size)) for size in sizes]
    shortest = min(map(_seconds, found))
    if shortest == 0.0:
        return next(each for each in found if given or each.bucket_bytes == DEFAULT_BUCKET)
    return next(each for each in found if _seconds(each) <= TOLERATED * shortest)


def _seconds(choice: Choice) -> float:
    return choice.predicted_s or 0.0


def _ring(line: Line, groups: Sequence[str], size: float) -> float:
    """K - 1 hops to add up and K - 1 to hand round, each with one K-th."""
    ranks = len(groups)
    return 2 * (ranks - 1) * (line.latency_s + size / ranks / line.slowest)


def _hierarchical(line: Line, groups: Sequence[str], size: float) -> float:
    """Inside the switches and across them at the same time. An uplink carries all its switch's rings; a phone's cable
    carries those inside, and its share of those across."""
    members, switches = max(Counter(groups).values()), len(set(groups))
    inside = 2 * (members * switches - 1) * size / (members * switches) / line.inside
    across = 2 * (switches - 1) * size / switches / line.across
    hops = 2 * (members - 1) + 2 * (switches - 1)
    return max(inside, across) + hops * line.latency_s
