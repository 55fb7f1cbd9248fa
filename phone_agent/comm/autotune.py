"""Which way to sum the gradients, and in pieces of which size: a model of what each takes on this line. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from phone_agent.comm.groups import divided
from phone_agent.comm.hierarchical import slices
from phone_agent.comm.link_probe import Line
from phone_agent.comm.message_sizes import Load

BUCKETS = tuple(1024 * 1024 * size for size in (4, 8, 16, 32))
DEFAULT_BUCKET = BUCKETS[0]  # not smaller: ranks wait for each other at each part
TOLERATED = 1.02  # of the shortest time, for smaller pieces: they leave sooner, and what is urgent waits less for them
COUNTED_ON = 0.5  # of the computing that is expected, to hide communication: expectations are rough
WORTH_A_CHANGE = 0.9  # of the time of what is plainer: predictions are not that exact
EVERY_WIRE = ("fp32", "fp16")  # from the plainest; formats that lose more are for people to choose
EVERY_ALGORITHM = ("ring", "hierarchical")  # ours, which know every wire


@dataclass(frozen=True)
class Wanted:
    """What a person fixed; `auto`, and 0 bytes, leave it to the model."""

    algorithm: str
    wire: str
    bucket_bytes: int
    group: int = 0


@dataclass(frozen=True)
class Choice:
    """`group`: most phones of a hierarchy's groups; 0: a switch's. Seconds that all messages of a step take by the
    model, and those the line allows; None: nobody to talk to; or, by the model, an algorithm that is MPI's."""

    algorithm: str
    wire: str
    bucket_bytes: int
    predicted_s: float | None = None
    limit_s: float | None = None
    group: int = 0


def choose(
    wanted: Wanted, line: Line | None, switches: Sequence[str], load: Load, compute_s: float | None = None
) -> Choice:
    """`switches`: each rank's; `compute_s`: what a step computes beside it, roughly, or None where one waits for the
    other. What is more involved must be clearly faster."""
    ways, wires = _ways(wanted, switches), _wires(wanted)
    if line is None:
        (algorithm, group), *_ = ways
        return Choice(algorithm, wires[0], wanted.bucket_bytes or DEFAULT_BUCKET, group=group)
    on = _Rack(line, switches, load, compute_s)
    (least, chosen), *others = (
        _best_bucket(Choice(algorithm, wire, wanted.bucket_bytes, group=group), on)
        for wire, (algorithm, group) in product(wires, ways)
    )
    for waited_s, each in others:
        if waited_s < _needed(chosen, each) * least:
            least, chosen = waited_s, each
    return replace(chosen, limit_s=limit_s(line, switches, chosen, load))


def _ways(wanted: Wanted, switches: Sequence[str]) -> list[tuple[str, int]]:
    """Algorithms and their groups, from the plainest."""
    if wanted.algorithm != "auto":
        return [(wanted.algorithm, wanted.group)]
    smaller = range(2, max(Counter(switches).values()))
    groups = (wanted.group,) if wanted.group else (0, *smaller)
    return [("ring", 0), *(("hierarchical", group) for group in groups)]


def _needed(chosen: Choice, other: Choice) -> float:
    """Of the chosen one's time. Groups of another size are no more involved."""
    as_involved = (chosen.algorithm, chosen.wire) == (other.algorithm, other.wire)
    return 1.0 if as_involved else WORTH_A_CHANGE


def _wires(wanted: Wanted) -> tuple[str, ...]:
    if wanted.wire != "auto":
        return (wanted.wire,)
    return EVERY_WIRE if wanted.algorithm in {*EVERY_ALGORITHM, "auto"} else EVERY_WIRE[:1]


def predict(line: Line, switches: Sequence[str], way: Choice, messages: Sequence[float]) -> float | None:
    """Seconds for all messages, of so many bytes on the wire, one after the other."""
    if way.algorithm not in EVERY_ALGORITHM:
        return None
    if way.algorithm != "hierarchical":
        return sum(_ring(line, len(switches), size) for size in messages)
    hierarchy = _Hierarchy.of(line, switches, way.group)
    return sum(hierarchy.seconds(size) for size in messages)


@dataclass(frozen=True)
class _Rack:
    """What is to be summed where, and beside which computing."""

    line: Line
    switches: Sequence[str]
    load: Load
    compute_s: float | None

    def predicted(self, way: Choice) -> Choice:
        return replace(way, predicted_s=self._takes(way, self.load.messages(way.wire, way.bucket_bytes)))

    def waited_s(self, way: Choice) -> float:
        """What a step waits for, of what was predicted: all that computing does not hide; the last part, which is ready
        last and needed first; and half of a part that is on its way just then."""
        predicted_s = way.predicted_s or 0.0
        if self.compute_s is None:
            return predicted_s
        of_a_part, of_the_last = (
            self._takes(way, messages(way.wire, way.bucket_bytes)) or 0.0
            for messages in (self.load.of_a_part, self.load.of_the_last)
        )
        return max(0.0, predicted_s - COUNTED_ON * self.compute_s) + of_a_part / 2 + of_the_last

    def _takes(self, way: Choice, messages: Sequence[float]) -> float | None:
        return predict(self.line, self.switches, way, messages)


def limit_s(line: Line, switches: Sequence[str], way: Choice, load: Load) -> float:
    """No such allreduce is faster on links of this rate: what each must carry at least, and nothing else."""
    total = sum(load.messages(way.wire, way.bucket_bytes))
    if way.algorithm != "hierarchical":
        return _ring(replace(line, latency_s=0.0), len(switches), total)
    return _Hierarchy.of(line, switches, way.group).busiest_s(total)


def _best_bucket(way: Choice, on: _Rack) -> tuple[float, Choice]:
    """And what is waited for then. The smallest there is, where nothing is foretold."""
    sizes = (way.bucket_bytes,) if way.bucket_bytes else BUCKETS
    found = [on.predicted(replace(way, bucket_bytes=size)) for size in sizes]
    waited = [on.waited_s(each) for each in found]
    return next(pair for pair in zip(waited, found, strict=True) if pair[0] <= TOLERATED * min(waited))


def _ring(line: Line, ranks: int, size: float) -> float:
    """K - 1 hops to add up and K - 1 to hand round, each with one K-th."""
    return 2 * (ranks - 1) * (line.latency_s + size / ranks / line.slowest)


@dataclass(frozen=True)
class _Hierarchy:
    """`members` of the largest of `groups`; `crosses`: some of them are on other switches."""

    line: Line
    members: int
    groups: int
    crosses: bool

    @classmethod
    def of(cls, line: Line, switches: Sequence[str], group: int) -> _Hierarchy:
        sizes = Counter(divided(switches, group))
        return cls(line, max(sizes.values()), len(sizes), len(set(switches)) > 1)

    def seconds(self, size: float) -> float:
        """While an uplink works, slices are summed and handed round inside; but for the first and the last one. Where
        cables to the phones are the busiest, they are busy throughout."""
        inside = 2 * (self.members - 1) * size / self.members / self.line.inside
        exposed = inside / self._slices(size) if self._uplink_s(size) > self._cable_s(size) else 0.0
        hops = 2 * (self.members - 1) + 2 * (self.groups - 1)
        return self.busiest_s(size) + exposed + hops * self.line.latency_s

    def busiest_s(self, size: float) -> float:
        return max(self._cable_s(size), self._uplink_s(size))

    def _cable_s(self, size: float) -> float:
        """A phone's cable carries the rings inside, and its share of those across."""
        ranks = self.members * self.groups
        return 2 * (ranks - 1) * size / ranks / self.line.inside

    def _uplink_s(self, size: float) -> float:
        """An uplink carries all rings across."""
        return 2 * (self.groups - 1) * size / self.groups / self.line.across if self.crosses else 0.0

    def _slices(self, size: float) -> int:
        return slices(int(size), self.members * self.groups)
