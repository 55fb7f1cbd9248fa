"""Every op on every shape, with what must come out. Variants (how it is read, how finished) go round the shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Act, Algorithm, Geometry, Kind, Number, Pooling
from tests.core import dgemm_cases, eliminate_cases, grid, lowrank_cases, oracle, update_cases, wire_cases
from tests.core.augment_cases import augments
from tests.core.draw import Draw
from tests.core.memory import TYPES, Case, Memory, Wanted, block, read_rows, struct, written_rows

Array = NDArray[Any]


class Cases(Protocol):
    def __call__(self, *, full: bool) -> Iterator[Case]: ...


# Largest error against the largest number of the result, in float32. Sums of thousands of products end up here.
SUMS = 1e-5
WINOGRAD2 = 3e-5
WINOGRAD4 = 3e-4
ELEMENTWISE = 2e-6
STATISTICS = 3e-6
POWERS = 5e-6
SOFTMAX = 5e-6
EXACT = 0.0

# How activations are stored: those that are read, and the result. FP16 adds its rounding to a result's tolerance.
Numbers = tuple[Number, Number]
FLOATS: Numbers = (Number.FP32, Number.FP32)
HALVES: list[Numbers] = [(Number.FP16, Number.FP16), (Number.FP32, Number.FP16), (Number.FP16, Number.FP32)]


def _draw(name: str, numbers: Numbers) -> Draw:
    return Draw(name, half=numbers != FLOATS)


def _told(numbers: Numbers) -> str:
    return "" if numbers == FLOATS else f" {numbers[0].name.lower()}-{numbers[1].name.lower()}"


class Seen:
    """A source: what is stored, and what its readers see."""

    def __init__(
        self,
        draw: Draw,
        name: str,
        shape: tuple[int, ...],
        extra: int,
        act: Act | None,
        number: Number = Number.FP32,
        *,
        exact: bool = False,
    ) -> None:
        stored = draw.eighths(*shape) if exact else draw.normal(*shape)
        channels = shape[-1]
        fields: dict[str, Any] = {"data": read_rows(name, stored, channels + extra, number), "ld": channels + extra}
        fields["number"] = number
        scale = shift = None
        if act is not None:
            scale = draw.choice([0.5, 1, 2, -1], channels) if exact else draw.normal(channels)
            shift = draw.eighths(channels) if exact else draw.normal(channels)
            fields |= {"scale": block("scale", scale), "shift": block("shift", shift), "act": act}
        self.memory = struct(ops.Source, **fields)
        self.values = oracle.seen(stored, scale, shift, act or Act.NONE)


SOURCES: list[Act | None] = [None, Act.RELU, Act.NONE, Act.RELU6]


class Norm:
    """A batch normalisation: before its statistics are known, or (with `z`) after."""

    EPSILON, MOMENTUM = 1e-5, 0.1

    def __init__(self, draw: Draw, channels: int, *, known: bool, accumulate: bool = False) -> None:
        self.channels = channels
        self.gamma, self.beta = draw.normal(channels), draw.normal(channels)
        self.running_mean, self.running_var = draw.normal(channels), draw.positive(channels)
        self.mean, self.inv_std = draw.normal(channels), draw.positive(channels)
        self.scale = (self.gamma * self.inv_std).astype(np.float32).astype(np.float64)
        self.shift = (self.beta - self.mean * self.scale).astype(np.float32).astype(np.float64)
        self.dgamma, self.dbeta = draw.normal(channels), draw.normal(channels)
        self.accumulate = accumulate
        unknown = np.full(channels, np.nan)
        self._blocks = {
            "gamma": block("gamma", self.gamma),
            "beta": block("beta", self.beta),
            "running_mean": block("running_mean", self.running_mean),
            "running_var": block("running_var", self.running_var),
            "dgamma": block("dgamma", self.dgamma if accumulate else unknown),
            "dbeta": block("dbeta", self.dbeta if accumulate else unknown),
            **{
                part: block(part, getattr(self, part) if known else unknown)
                for part in ("mean", "inv_std", "scale", "shift")
            },
        }
        self.sums = Memory("sums", np.full(2 * channels, np.nan), per_thread=True)
        self.memory = struct(
            ops.Norm, "norm", **self._blocks, sums=self.sums,
            epsilon=self.EPSILON, momentum=self.MOMENTUM, channels=channels, accumulate=int(accumulate),
        )  # fmt: skip

    def part(self, name: str) -> Memory:
        return self._blocks[name]

    def wants(self, tolerance: float, **values: Array) -> Iterator[Wanted]:
        for part, want in values.items():
            yield Wanted(self._blocks[part], want, tolerance)

    def wants_statistics(self, z: Array) -> Iterator[Wanted]:
        mean, inv_std, unbiased = oracle.statistics(z, self.EPSILON)
        old = 1 - self.MOMENTUM
        # What rounding of z costs where the mean is large against the spread.
        cost = np.abs(mean) * inv_std**2 / inv_std.max()
        yield from self.wants(
            STATISTICS * max(1.0, float(cost.max())),
            mean=mean,
            inv_std=inv_std,
            scale=self.gamma * inv_std,
            shift=self.beta - mean * self.gamma * inv_std,
            running_mean=old * self.running_mean + self.MOMENTUM * mean,
            running_var=old * self.running_var + self.MOMENTUM * unbiased,
        )

    def off_the_edges(self, draw: Draw, shape: tuple[int, ...], act: Act) -> Array:
        """A z where rounding cannot change which gradients pass: away from scale z + shift = 0 or 6."""
        z = draw.normal(*shape)
        if act == Act.NONE:
            return z
        y = self.scale * z + self.shift
        near = (np.abs(y) < 1e-3) | (np.abs(y - 6) < 1e-3)
        return draw.rounded(np.where(near, z + 0.01 / np.where(np.abs(self.scale) < 1e-3, 1e-3, self.scale), z))


class Sunk:
    """A sink of one variety, and what must be in it after `gradient` went there."""

    def __init__(
        self,
        draw: Draw,
        gradient: Array,
        variety: tuple[bool, str, Act],
        extra: int,
        tolerance: float,
        number: Number = Number.FP32,
    ) -> None:
        accumulate, mask, act = variety
        channels = gradient.shape[-1]
        before = draw.normal(*gradient.shape) if accumulate else None
        total = gradient if before is None else gradient + before
        fields: dict[str, Any] = {"act": act, "accumulate": int(accumulate), "ld": channels + extra}
        self.wanted: list[Wanted] = []
        if mask == "norm":
            norm = Norm(draw, channels, known=True)
            z = norm.off_the_edges(draw, gradient.shape, act)
            total = oracle.passed(total, norm.scale * z + norm.shift, act)
            fields |= {"y": read_rows("z", z, channels + 2, number), "ld_y": channels + 2, "norm": norm.memory}
            self.wanted.append(Wanted(norm.sums, oracle.gradient_sums(total, z, norm.mean).reshape(-1), SUMS))
        elif act != Act.NONE:
            y = oracle.activate(4 * draw.normal(*gradient.shape), act)
            total = oracle.passed(total, y, act)
            fields |= {"y": read_rows("masking y", y, channels + 1, number), "ld_y": channels + 1}
        into = written_rows("dx", before, total, channels + extra, tolerance)
        self.wanted.append(into)
        self.memory = struct(ops.Sink, **fields, data=into.memory, number=number)


SINKS: list[tuple[bool, str, Act]] = [
    (False, "", Act.NONE),
    (True, "", Act.NONE),
    (False, "y", Act.RELU),
    (True, "y", Act.RELU6),
    (False, "norm", Act.RELU),
    (True, "norm", Act.RELU6),
    (True, "norm", Act.NONE),
]


def _image(g: Geometry) -> tuple[int, int, int, int]:
    return g.batch, g.in_h, g.in_w, g.in_c


def _result(g: Geometry) -> tuple[int, int, int, int]:
    return g.batch, g.out_h, g.out_w, g.out_c


def _weight(g: Geometry) -> tuple[int, int, int, int]:
    return g.kernel_h, g.kernel_w, g.in_c // g.groups, g.out_c


FINISHES = ["plain", "bias", "norm", "relu", "bias relu6", "bias relu", "norm", "relu6"]


def conv_forward(
    kind: Kind, g: Geometry, algorithm: Algorithm, act: Act | None, finish: str, extra: int, numbers: Numbers = FLOATS
) -> Case:
    name = f"{grid.name(g)} {algorithm.name.lower()} source={act} {finish} +{extra}{_told(numbers)}"
    draw = _draw(name, numbers)
    tolerance = _tolerance(algorithm)
    x = Seen(draw, "x", _image(g), extra, act, numbers[0])
    weights = draw.normal(*_weight(g)) / np.sqrt(np.prod(_weight(g)[:3]))
    weights = weights.astype(np.float32).astype(np.float64)
    y = oracle.conv_forward(g, x.values, weights)
    fields: dict[str, Any] = {"x": x.memory, "weights": block("weights", weights), "algorithm": algorithm}
    wanted: list[Wanted] = []
    scratch: tuple[Memory, ...] = ()
    if finish == "norm":
        norm = Norm(draw, g.out_c, known=False)
        if g.batch * g.out_h * g.out_w > 1:  # of one pixel there is no variance
            wanted += norm.wants_statistics(y)
        else:
            scratch = tuple(norm.memory.reachable())[1:]
        scratch += (norm.sums,)
        fields["norm"] = norm.memory
    if "bias" in finish:
        bias = draw.normal(g.out_c)
        y = y + bias
        fields["bias"] = block("bias", bias)
    after = Act.RELU6 if "relu6" in finish else Act.RELU if "relu" in finish else Act.NONE
    into = written_rows("y", None, oracle.activate(y, after), g.out_c + extra, tolerance, numbers[1])
    op = struct(
        ops.ConvForward, g=_part(g), y=into.memory, ld_y=g.out_c + extra, act=after, number=numbers[1], **fields
    )
    return Case(name, kind, op, (into, *wanted), scratch)


def conv_backward_data(
    kind: Kind,
    g: Geometry,
    algorithm: Algorithm,
    sink: tuple[bool, str, Act],
    extra: int,
    numbers: Numbers = FLOATS,
) -> Case:
    name = f"{grid.name(g)} {algorithm.name.lower()} sink={sink} +{extra}{_told(numbers)}"
    draw = _draw(name, numbers)
    dy = draw.normal(*_result(g))
    weights = draw.normal(*_weight(g))
    sunk = Sunk(draw, oracle.conv_backward_data(g, dy, weights), sink, extra, _tolerance(algorithm), numbers[0])
    op = struct(
        ops.ConvBackwardData, g=_part(g), dy=read_rows("dy", dy, g.out_c + extra), weights=block("weights", weights),
        dx=sunk.memory, ld_dy=g.out_c + extra, algorithm=algorithm,
    )  # fmt: skip
    return Case(name, kind, op, tuple(sunk.wanted))


def conv_backward_weights(
    kind: Kind,
    g: Geometry,
    algorithm: Algorithm,
    act: Act | None,
    variety: tuple[bool, bool],
    extra: int,
    numbers: Numbers = FLOATS,
) -> Case:
    accumulate, bias = variety
    name = f"{grid.name(g)} {algorithm.name.lower()} source={act} accumulate={accumulate} bias={bias} +{extra}"
    name += _told(numbers)
    draw = _draw(name, numbers)
    x = Seen(draw, "x", _image(g), extra, act, numbers[0])
    dy = draw.normal(*_result(g))
    dweights = oracle.conv_backward_weights(g, x.values, dy)
    dbias = dy.reshape(-1, g.out_c).sum(axis=0)
    targets = {"dweights": dweights} | ({"dbias": dbias} if bias else {})
    wanted = []
    for target, want in targets.items():
        before = draw.normal(want.size).reshape(want.shape) if accumulate else np.full(want.shape, np.nan)
        total = want + before if accumulate else want
        wanted.append(Wanted(block(target, before), total.reshape(-1), _tolerance(algorithm)))
    op = struct(
        ops.ConvBackwardWeights, g=_part(g), x=x.memory, dy=read_rows("dy", dy, g.out_c + extra), ld_dy=g.out_c + extra,
        algorithm=algorithm, accumulate=int(accumulate), **{item.memory.name: item.memory for item in wanted},
    )  # fmt: skip
    return Case(name, kind, op, tuple(wanted))


def _tolerance(algorithm: Algorithm) -> float:
    return {Algorithm.DIRECT: SUMS, Algorithm.WINOGRAD2: WINOGRAD2, Algorithm.WINOGRAD4: WINOGRAD4}[algorithm]


def _part(g: Geometry) -> Memory:
    return Memory("geometry", np.frombuffer(bytes(g), np.uint8))


def _every(
    kind: Kind,
    shapes: list[Geometry],
    algorithm: Algorithm = Algorithm.DIRECT,
    *,
    stored: Sequence[Numbers] = (FLOATS,),
) -> Iterator[Case]:
    sources, finishes, extras, sinks = cycle(SOURCES), cycle(FINISHES), cycle([0, 3, 16]), cycle(SINKS)
    numbers = cycle(stored)
    weights = cycle([(False, True), (True, False), (False, False), (True, True), (False, True)])
    for g in shapes:
        extra, number = next(extras), next(numbers)
        match kind:
            case Kind.CONV_FORWARD | Kind.DEPTHWISE_FORWARD:
                yield conv_forward(kind, g, algorithm, next(sources), next(finishes), extra, number)
            case Kind.CONV_BACKWARD_DATA | Kind.DEPTHWISE_BACKWARD_DATA:
                yield conv_backward_data(kind, g, algorithm, next(sinks), extra, number)
            case _:
                yield conv_backward_weights(kind, g, algorithm, next(sources), next(weights), extra, number)


def _stored(kind: Kind) -> list[Numbers]:
    """In fp16: all that a forward step has, or part of it; for others it is what they read."""
    return HALVES if kind in {Kind.CONV_FORWARD, Kind.DEPTHWISE_FORWARD} else HALVES[:1]


def _convolution(kind: Kind) -> Cases:
    def cases(*, full: bool) -> Iterator[Case]:
        yield from _every(kind, grid.convolutions(full=full) * (2 if full else 1))
        # Every way in with every way out, on one shape with tails everywhere.
        odd = [grid.geometry(2, (5, 7), 19, 21, 3, pad=1)] * 56
        yield from _every(kind, odd if full else odd[:8])
        for algorithm in (Algorithm.WINOGRAD2, Algorithm.WINOGRAD4):
            yield from _every(kind, grid.winograd(full=full), algorithm)
            halves = grid.winograd(full=full)[:: 1 if full else 3]
            yield from _every(kind, halves, algorithm, stored=_stored(kind))
        halves = grid.convolutions(full=full)[:: 1 if full else 3]
        yield from _every(kind, halves + (odd if full else odd[:8]), stored=_stored(kind))

    return cases


def _depthwise(kind: Kind) -> Cases:
    def cases(*, full: bool) -> Iterator[Case]:
        yield from _every(kind, grid.depthwise(full=full))
        odd = [grid.geometry(2, (5, 7), 19, 19, 3, pad=1, groups=19)] * 56
        yield from _every(kind, odd if full else odd[:8])
        halves = grid.depthwise(full=full)[:: 1 if full else 3]
        yield from _every(kind, halves + (odd if full else odd[:8]), stored=_stored(kind))

    return cases


VARIETIES_OF_POOLS = [(Pooling.MAX, False), (Pooling.AVERAGE, False), (Pooling.AVERAGE, True)]


def pool_forward(
    g: Geometry,
    pooling: Pooling,
    *,
    count_padding: bool,
    act: Act | None,
    extra: int,
    keep_winner: bool = True,
    numbers: Numbers = FLOATS,
) -> Case:
    name = f"{grid.name(g)} {pooling.name.lower()} count_padding={count_padding} source={act} +{extra}{_told(numbers)}"
    draw = _draw(name, numbers)
    x = Seen(draw, "x", _image(g), extra, act, numbers[0], exact=True)
    ld = g.out_c + extra
    fields: dict[str, Any] = {}
    wanted = []
    if pooling == Pooling.MAX:
        y, winner = oracle.max_pool_forward(g, x.values)
        if keep_winner:
            wanted.append(Wanted(Memory("winner", np.full(winner.size, 255, np.uint8)), winner.reshape(-1), EXACT))
            fields["winner"] = wanted[0].memory
    else:
        y = oracle.average_pool_forward(g, x.values, count_padding=count_padding)
    into = written_rows("y", None, y, ld, EXACT if pooling == Pooling.MAX else ELEMENTWISE, numbers[1])
    op = struct(
        ops.PoolForward, g=_part(g), x=x.memory, y=into.memory, ld_y=ld, pooling=pooling,
        count_padding=int(count_padding), number=numbers[1], **fields,
    )  # fmt: skip
    return Case(name, Kind.POOL_FORWARD, op, (into, *wanted))


def pool_backward(
    g: Geometry,
    pooling: Pooling,
    *,
    count_padding: bool,
    sink: tuple[bool, str, Act],
    extra: int,
    numbers: Numbers = FLOATS,
) -> Case:
    name = f"{grid.name(g)} {pooling.name.lower()} count_padding={count_padding} sink={sink} +{extra}{_told(numbers)}"
    draw = _draw(name, numbers)
    dy = draw.normal(*_result(g))
    fields: dict[str, Any] = {}
    if pooling == Pooling.MAX:
        _, winner = oracle.max_pool_forward(g, draw.normal(*_image(g)))
        fields["winner"] = block("winner", winner, np.uint8)
        dx = oracle.max_pool_backward(g, dy, winner)
    else:
        dx = oracle.average_pool_backward(g, dy, count_padding=count_padding)
    sunk = Sunk(draw, dx, sink, extra, ELEMENTWISE, numbers[0])
    op = struct(
        ops.PoolBackward, g=_part(g), dy=read_rows("dy", dy, g.out_c + extra), dx=sunk.memory, ld_dy=g.out_c + extra,
        pooling=pooling, count_padding=int(count_padding), **fields,
    )  # fmt: skip
    return Case(name, Kind.POOL_BACKWARD, op, tuple(sunk.wanted))


def _pool_forwards(*, full: bool) -> Iterator[Case]:
    acts, extras, halves = cycle(SOURCES), cycle([0, 3, 16]), cycle(HALVES)
    for g in grid.pools(full=full):
        for pooling, count_padding in VARIETIES_OF_POOLS:
            if pooling == Pooling.AVERAGE or (2 * g.pad_h <= g.kernel_h and 2 * g.pad_w <= g.kernel_w):
                yield pool_forward(g, pooling, count_padding=count_padding, act=next(acts), extra=next(extras))
                act, extra, numbers = next(acts), next(extras), next(halves)
                yield pool_forward(g, pooling, count_padding=count_padding, act=act, extra=extra, numbers=numbers)
        if 2 * g.pad_h <= g.kernel_h:  # evaluation has no use for the winners
            yield pool_forward(g, Pooling.MAX, count_padding=False, act=None, extra=1, keep_winner=False)


def _pool_backwards(*, full: bool) -> Iterator[Case]:
    sinks, extras, stored = cycle(SINKS), cycle([0, 3, 16]), cycle([FLOATS, FLOATS, FLOATS, HALVES[0]])
    for g in grid.pools(full=full):
        for pooling, count_padding in VARIETIES_OF_POOLS:
            sink, extra, numbers = next(sinks), next(extras), next(stored)
            yield pool_backward(g, pooling, count_padding=count_padding, sink=sink, extra=extra, numbers=numbers)


def _norm_forwards(*, full: bool) -> Iterator[Case]:
    shapes = [(shape, numbers) for shape in grid.matrices(full=full) for numbers in (FLOATS, HALVES[0])]
    for ((rows, channels), numbers), extra in zip(shapes, cycle([0, 0, 5, 5]), strict=False):
        if rows == 1:
            continue
        name = f"{rows}x{channels} +{extra}{_told(numbers)}"
        draw = _draw(name, numbers)
        norm = Norm(draw, channels, known=False)
        z = draw.rounded(draw.normal(rows, channels) + 2 * draw.normal(channels))
        memory = read_rows("z", z, channels + extra, numbers[0])
        op = struct(ops.NormForward, norm=norm.memory, z=memory, rows=rows, ld_z=channels + extra, number=numbers[0])
        yield Case(name, Kind.NORM_FORWARD, op, tuple(norm.wants_statistics(z)), (norm.sums,))


def _norm_folds(*, full: bool) -> Iterator[Case]:
    for _, channels in grid.matrices(full=full):
        norm = Norm(Draw(f"fold {channels}"), channels, known=False)
        scale = norm.gamma / np.sqrt(norm.running_var + norm.EPSILON)
        wanted = norm.wants(ELEMENTWISE, scale=scale, shift=norm.beta - norm.running_mean * scale)
        op = struct(ops.NormFold, norm=norm.memory)
        yield Case(
            str(channels), Kind.NORM_FOLD, op, tuple(wanted), (norm.sums, norm.part("mean"), norm.part("inv_std"))
        )


JOINS = ["", "joined", "joined keep", "reduced", "joined reduced keep"]


def norm_backward(
    rows: int,
    channels: int,
    how: str,
    acts: tuple[Act, Act],
    extra: int,
    *,
    in_place: bool,
    numbers: Numbers = FLOATS,
) -> Case:
    name = f"{rows}x{channels} {how or 'alone'} acts={acts} +{extra} in_place={in_place}{_told(numbers)}"
    draw = _draw(name, numbers)
    act, join_act = acts
    norm = Norm(draw, channels, known=True, accumulate=extra > 0)
    z = norm.off_the_edges(draw, (rows, channels), act)
    dy = draw.normal(rows, channels)
    fields: dict[str, Any] = {}
    g = dy
    if "joined" in how:
        joined = oracle.activate(4 * draw.normal(rows, channels), join_act)
        g = oracle.passed(g, joined, join_act)
        memory = read_rows("joined", joined, channels + 1, numbers[0])
        fields |= {"joined": memory, "ld_joined": channels + 1, "join_act": join_act}
    masked = oracle.passed(g, norm.scale * z + norm.shift, act)
    dz, dgamma, dbeta = oracle.norm_backward(masked, z, norm.gamma, norm.mean, norm.inv_std)
    if norm.accumulate:
        dgamma, dbeta = dgamma + norm.dgamma, dbeta + norm.dbeta
    before = dy
    if "reduced" in how:  # a sink was here: dy is masked, its sums are known
        before = masked
        norm.sums.data[:] = oracle.gradient_sums(masked, z, norm.mean).reshape(-1)
    writes_dy = "joined" in how and "keep" not in how and "reduced" not in how
    ld = channels + extra
    dy_after = dz if in_place else g if writes_dy else before
    dy_wanted = written_rows("dy", before, dy_after, ld, SUMS if in_place else EXACT if not writes_dy else ELEMENTWISE)
    dz_wanted = dy_wanted if in_place else written_rows("dz", None, dz, ld, SUMS)
    op = struct(
        ops.NormBackward, norm=norm.memory, z=read_rows("z", z, channels + 2, numbers[0]), dy=dy_wanted.memory,
        dz=dz_wanted.memory, rows=rows, ld_z=channels + 2, ld_dy=ld, ld_dz=ld, act=act, reduced=int("reduced" in how),
        keep_dy=int("keep" in how), number=numbers[0], **fields,
    )  # fmt: skip
    wanted = {id(item): item for item in (dy_wanted, dz_wanted, *norm.wants(SUMS, dgamma=dgamma, dbeta=dbeta))}
    return Case(name, Kind.NORM_BACKWARD, op, tuple(wanted.values()), (norm.sums,))


def _norm_backwards(*, full: bool) -> Iterator[Case]:
    extras = cycle([0, 3])
    acts = cycle([(Act.RELU, Act.NONE), (Act.NONE, Act.RELU), (Act.RELU6, Act.NONE), (Act.NONE, Act.RELU6)])
    shapes = grid.matrices(full=full)
    wanted = [(shape, FLOATS) for shape in shapes] + [(shape, HALVES[0]) for shape in shapes[:: 1 if full else 2]]
    for (rows, channels), numbers in wanted:
        for how in JOINS:
            pair = next(acts)
            if "joined" in how:
                pair = (Act.NONE, pair[0] or pair[1])
            # In place, dy would be dz and the masked gradient of the other branch at once.
            in_place = how in {"", "reduced"} and rows % 2 == 1
            yield norm_backward(rows, channels, how, pair, next(extras), in_place=in_place, numbers=numbers)


def _join_forwards(*, full: bool) -> Iterator[Case]:
    acts, sources, extras = cycle([Act.NONE, Act.RELU, Act.RELU6]), cycle(SOURCES), cycle([0, 3, 7])
    stored = cycle([FLOATS, HALVES[0], FLOATS, FLOATS, HALVES[1], FLOATS, HALVES[2]])
    for rows, channels in grid.matrices(full=full):
        for both in (True, False, True, False):
            act, left, right, extra = next(acts), next(sources), next(sources), next(extras)
            numbers = next(stored)
            name = f"{rows}x{channels} a={left} b={right if both else 'null'} act={act} +{extra}{_told(numbers)}"
            draw = _draw(name, numbers)
            a = Seen(draw, "a", (rows, channels), extra, left, numbers[0])
            y = a.values
            fields = {"a": a.memory}
            if both:
                b = Seen(draw, "b", (rows, channels), 2 * extra, right, numbers[1])
                y = y + b.values
                fields["b"] = b.memory
            into = written_rows("y", None, oracle.activate(y, act), channels + extra, ELEMENTWISE, numbers[1])
            op = struct(
                ops.JoinForward, y=into.memory, rows=rows, channels=channels, ld_y=channels + extra, act=act,
                number=numbers[1], **fields,
            )  # fmt: skip
            yield Case(name, Kind.JOIN_FORWARD, op, (into,))
    yield from (_stored_as(numbers) for numbers in HALVES[1:])


def _stored_as(numbers: Numbers) -> Case:
    """To fp16 and back, to the bit: ties, what is too large, too small, or no number."""
    halves = np.arange(0x10000, dtype=np.uint16).view(np.float16)
    values = halves.astype(np.float32)
    if numbers[0] == Number.FP32:
        with np.errstate(invalid="ignore"):
            between = (values[:-1].astype(np.float64) + values[1:]) / 2
        beyond = np.array([65519.99, 65520, 1e30, -65520, 2.0**-25, -(2.0**-26), np.inf, -np.inf, np.nan])
        with np.errstate(invalid="ignore"):  # a signalling NaN among the halves
            values = np.concatenate([values, between, beyond]).astype(np.float32)
    row = values.reshape(1, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        want = row.astype(TYPES[numbers[1]]).astype(np.float64)
    ld = values.size
    into = written_rows("y", None, want, ld, EXACT, numbers[1])
    a = struct(ops.Source, data=read_rows("a", row, ld, numbers[0]), ld=ld, number=numbers[0])
    op = struct(ops.JoinForward, a=a, y=into.memory, rows=1, channels=ld, ld_y=ld, number=numbers[1])
    return Case(f"every half{_told(numbers)}", Kind.JOIN_FORWARD, op, (into,))


def _join_backwards(*, full: bool) -> Iterator[Case]:
    acts, extras = cycle([Act.NONE, Act.RELU, Act.RELU6]), cycle([0, 3, 7, 16])
    stored = cycle([FLOATS, HALVES[0], FLOATS, HALVES[0], FLOATS, FLOATS, FLOATS])
    for rows, channels in grid.matrices(full=full):
        for accumulate, in_place in ((False, False), (True, False), (False, True), (False, False), (True, False)):
            act, extra, numbers = next(acts), next(extras), next(stored)
            name = f"{rows}x{channels} act={act} accumulate={accumulate} +{extra} in_place={in_place}{_told(numbers)}"
            draw = _draw(name, numbers)
            before = draw.normal(rows, channels) if accumulate else None
            dy = original = draw.normal(rows, channels)
            fields: dict[str, Any] = {"dy": read_rows("dy", dy, channels + extra), "ld_dy": channels + extra}
            if act != Act.NONE:
                y = oracle.activate(4 * draw.normal(rows, channels), act)
                dy = oracle.passed(dy, y, act)
                fields |= {"y": read_rows("y", y, channels + 1, numbers[0]), "ld_y": channels + 1}
            ld = channels + (extra if in_place else 2)
            after = dy if before is None else dy + before
            into = written_rows("target", original if in_place else before, after, ld, ELEMENTWISE)
            if in_place:
                fields["dy"] = into.memory
            op = struct(
                ops.JoinBackward, target=into.memory, rows=rows, channels=channels, ld_target=ld, act=act,
                accumulate=int(accumulate), number=numbers[0], **fields,
            )  # fmt: skip
            yield Case(name, Kind.JOIN_BACKWARD, op, (into,))


LRN = [(5, 1e-4, 0.75, 1.0), (5, 0.5, 0.75, 2.0), (3, 1.0, 0.5, 1.0), (4, 0.3, 1.0, 1.0), (1, 0.1, 0.6, 1.5)]


def _lrn_forwards(*, full: bool) -> Iterator[Case]:
    rules, sources, extras = cycle(LRN), cycle(SOURCES), cycle([0, 3])
    for (rows, channels), numbers in product(grid.matrices(full=full), (FLOATS, HALVES[0])):
        (size, alpha, beta, k), act, extra = next(rules), next(sources), next(extras)
        name = f"{rows}x{channels} size={size} alpha={alpha} beta={beta} k={k} source={act} +{extra}{_told(numbers)}"
        x = Seen(_draw(name, numbers), "x", (rows, channels), extra, act, numbers[0])
        y = oracle.lrn_forward(x.values, size, alpha, beta, k)
        into = written_rows("y", None, y, channels + extra, POWERS, numbers[1])
        op = struct(
            ops.LrnForward, x=x.memory, y=into.memory, rows=rows, channels=channels, ld_y=channels + extra, size=size,
            alpha=alpha, beta=beta, k=k, number=numbers[1],
        )  # fmt: skip
        yield Case(name, Kind.LRN_FORWARD, op, (into,))


def _lrn_backwards(*, full: bool) -> Iterator[Case]:
    rules, sources, sinks, extras = cycle(LRN), cycle(SOURCES), cycle(SINKS), cycle([0, 3])
    for (rows, channels), numbers in product(grid.matrices(full=full), (FLOATS, HALVES[0])):
        (size, alpha, beta, k), act, sink, extra = next(rules), next(sources), next(sinks), next(extras)
        name = f"{rows}x{channels} size={size} alpha={alpha} beta={beta} k={k} source={act} sink={sink} +{extra}"
        name += _told(numbers)
        draw = _draw(name, numbers)
        x = Seen(draw, "x", (rows, channels), extra, act, numbers[0])
        dy = draw.normal(rows, channels)
        sunk = Sunk(draw, oracle.lrn_backward(x.values, dy, size, alpha, beta, k), sink, extra, POWERS, numbers[0])
        op = struct(
            ops.LrnBackward, x=x.memory, dy=read_rows("dy", dy, channels + extra), dx=sunk.memory, rows=rows,
            channels=channels, ld_dy=channels + extra, size=size, alpha=alpha, beta=beta, k=k,
        )  # fmt: skip
        yield Case(name, Kind.LRN_BACKWARD, op, tuple(sunk.wanted))


def _kept(draw: int, salt: int, rate: float, shape: tuple[int, int]) -> Array:
    from phone_agent.nn.dropout import keep_mask

    return keep_mask(shape[0] * shape[1], rate, draw, salt).reshape(shape)


def _dropout_forwards(*, full: bool) -> Iterator[Case]:
    rates, sources, extras = cycle([0.5, 0.1, 0.9, 0.0]), cycle(SOURCES), cycle([0, 3])
    for (rows, channels), numbers in product(grid.matrices(full=full), (FLOATS, HALVES[0])):
        rate, act, extra = next(rates), next(sources), next(extras)
        name = f"{rows}x{channels} rate={rate} source={act} +{extra}{_told(numbers)}"
        x = Seen(_draw(name, numbers), "x", (rows, channels), extra, act, numbers[0])
        drawn, salt = 2**40 + 7 * rows, 1000 + channels
        y = np.where(_kept(drawn, salt, rate, (rows, channels)), x.values / (1 - rate), 0)
        into = written_rows("y", None, y, channels + extra, ELEMENTWISE, numbers[1])
        op = struct(
            ops.DropoutForward, x=x.memory, y=into.memory, draw=block("draw", np.array([drawn]), np.uint64), rows=rows,
            channels=channels, ld_y=channels + extra, rate=rate, salt=salt, number=numbers[1],
        )  # fmt: skip
        yield Case(name, Kind.DROPOUT_FORWARD, op, (into,))


def _dropout_backwards(*, full: bool) -> Iterator[Case]:
    rates, sinks, extras = cycle([0.5, 0.1, 0.9, 0.0]), cycle(SINKS), cycle([0, 3])
    for (rows, channels), numbers in product(grid.matrices(full=full), (FLOATS, HALVES[0])):
        rate, sink, extra = next(rates), next(sinks), next(extras)
        name = f"{rows}x{channels} rate={rate} sink={sink} +{extra}{_told(numbers)}"
        draw = _draw(name, numbers)
        dy = draw.normal(rows, channels)
        drawn, salt = 2**40 + 7 * rows, 1000 + channels
        dx = np.where(_kept(drawn, salt, rate, (rows, channels)), dy / (1 - rate), 0)
        sunk = Sunk(draw, dx, sink, extra, ELEMENTWISE, numbers[0])
        op = struct(
            ops.DropoutBackward, dy=read_rows("dy", dy, channels + extra), dx=sunk.memory,
            draw=block("draw", np.array([drawn]), np.uint64), rows=rows, channels=channels, ld_dy=channels + extra,
            rate=rate, salt=salt,
        )  # fmt: skip
        yield Case(name, Kind.DROPOUT_BACKWARD, op, tuple(sunk.wanted))


def _softmax_losses(*, full: bool) -> Iterator[Case]:
    for batch, classes, extra in [(1, 1, 0), (1, 10, 0), (7, 10, 3), (3, 17, 0), (16, 1000, 0), (65, 33, 5)]:
        for spread, smoothing in product((1.0, 40.0) if full else (5.0,), (0.0, 0.1)):
            name = f"{batch}x{classes} spread={spread} smoothing={smoothing} +{extra}"
            draw = Draw(name)
            scores = (spread * draw.normal(batch, classes)).astype(np.float32).astype(np.float64)
            labels = draw.integers(0, classes, batch)
            loss, dscores = oracle.softmax_loss(scores, labels, 0.25, smoothing)
            into = written_rows("dscores", None, dscores, classes + extra, SOFTMAX)
            loss_wanted = Wanted(block("loss", np.array([np.nan]), np.float64), np.array([loss]), SOFTMAX)
            op = struct(
                ops.SoftmaxLoss, scores=read_rows("scores", scores, classes + extra),
                labels=block("labels", labels, np.int32), weight=block("weight", np.array([0.25])), dscores=into.memory,
                loss=loss_wanted.memory, batch=batch, classes=classes, ld_scores=classes + extra,
                ld_dscores=classes + extra, smoothing=smoothing,
            )  # fmt: skip
            yield Case(name, Kind.SOFTMAX_LOSS, op, (into, loss_wanted))


CASES: dict[Kind, Cases] = {
    Kind.CONV_FORWARD: _convolution(Kind.CONV_FORWARD),
    Kind.CONV_BACKWARD_DATA: _convolution(Kind.CONV_BACKWARD_DATA),
    Kind.CONV_BACKWARD_WEIGHTS: _convolution(Kind.CONV_BACKWARD_WEIGHTS),
    Kind.DEPTHWISE_FORWARD: _depthwise(Kind.DEPTHWISE_FORWARD),
    Kind.DEPTHWISE_BACKWARD_DATA: _depthwise(Kind.DEPTHWISE_BACKWARD_DATA),
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: _depthwise(Kind.DEPTHWISE_BACKWARD_WEIGHTS),
    Kind.POOL_FORWARD: _pool_forwards,
    Kind.POOL_BACKWARD: _pool_backwards,
    Kind.NORM_FORWARD: _norm_forwards,
    Kind.NORM_FOLD: _norm_folds,
    Kind.NORM_BACKWARD: _norm_backwards,
    Kind.JOIN_FORWARD: _join_forwards,
    Kind.JOIN_BACKWARD: _join_backwards,
    Kind.LRN_FORWARD: _lrn_forwards,
    Kind.LRN_BACKWARD: _lrn_backwards,
    Kind.DROPOUT_FORWARD: _dropout_forwards,
    Kind.DROPOUT_BACKWARD: _dropout_backwards,
    Kind.SOFTMAX_LOSS: _softmax_losses,
    Kind.UPDATE: update_cases.updates,
    Kind.ENCODE: wire_cases.encodes,
    Kind.DECODE: wire_cases.decodes,
    **lowrank_cases.KINDS,
    Kind.AUGMENT: augments,
    Kind.DGEMM: dgemm_cases.products,
    Kind.ELIMINATE: eliminate_cases.columns,
}
