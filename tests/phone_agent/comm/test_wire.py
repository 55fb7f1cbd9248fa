"""Wire formats against numpy: the same bits, any length, residuals, NaN and infinity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phone_agent.comm.wire import WIRE_FORMATS, Bytes, Floats, Wire, WireCodec
from phone_agent.core.ops import DType
from tests.phone_agent.core.wire_cases import decoded, encoded

no_deadline = settings(deadline=None)
NAMES = tuple(WIRE_FORMATS)
ROUNDING = tuple(name for name in NAMES if not WIRE_FORMATS[name].exact)
lengths = st.one_of(st.integers(0, 3), st.integers(250, 260), st.integers(0, 3000))
# Half a step of 127 steps, of 11 bits and of 8 bits, relative to the largest number of a block.
COARSENESS = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.5 / 127}


def numbers(seed: int, count: int, scale: float = 1.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(count) * scale).astype(np.float32)


def encode(
    wire: Wire,
    values: Floats,
    arrived: Bytes | None = None,
    residual: Floats | None = None,
    *,
    write_back: bool = False,
) -> Bytes:
    to = np.full(wire.size(values.size), 77, np.uint8)
    WireCodec(wire).encode(values, to, arrived, residual, write_back=write_back)
    return to


def decode(wire: Wire, message: Bytes, count: int) -> Floats:
    values = np.empty(count, np.float32)
    WireCodec(wire).decode(message, values)
    return values


def sum_along_ring(wire: Wire, ranks: Sequence[Floats], residuals: Sequence[Floats | None]) -> Floats:
    """A piece on its way through a ring: encoded by the first rank, added to by the others, finished by the last."""
    message = encode(wire, ranks[0].copy(), None, residuals[0])
    for own, residual in zip(ranks[1:-1], residuals[1:-1], strict=True):
        message = encode(wire, own.copy(), message, residual)
    last = ranks[-1].copy()
    message = encode(wire, last, message, residuals[-1], write_back=True)
    decoded_by_others = decode(wire, message, last.size)
    assert decoded_by_others.tobytes() == last.tobytes(), (
        "the last rank has other bits than the ranks that receive from it"
    )
    return decoded_by_others


@pytest.mark.parametrize("name", NAMES)
@no_deadline
@given(count=lengths, seed=st.integers(0, 100))
def test_bytes_match_numpy(name: str, count: int, seed: int) -> None:
    wire, dtype = WIRE_FORMATS[name], DType[name.upper()]
    values, more = numbers(seed, count), numbers(seed + 1, count)
    message = encode(wire, values.copy())
    assert message.tobytes() == encoded(values, dtype).tobytes()
    assert len(message) == wire.size(count)
    sums = more.copy()
    WireCodec(wire).decode(message, sums, accumulate=True)
    np.testing.assert_array_equal(sums, more + decoded(message, count, dtype))
    passed_on = encode(wire, more.copy(), message)
    assert passed_on.tobytes() == encoded(sums, dtype).tobytes()
    WireCodec(wire).encode(more.copy(), message, message)
    assert message.tobytes() == passed_on.tobytes(), "encoding in place gives other bytes"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1.0, 1e9])
def test_rounds_to_nearest_for_gradients_of_any_size(name: str, scale: float) -> None:
    wire = WIRE_FORMATS[name]
    values = numbers(0, 5000, scale)
    arrived = decode(wire, encode(wire, values.copy()), 5000)
    largest = np.abs(np.pad(values, (0, -5000 % 256)).reshape(-1, 256)).max(axis=1).repeat(256)[:5000]
    assert (np.abs(arrived - values) <= 1.0001 * COARSENESS[name] * largest).all()


@pytest.mark.parametrize("name", NAMES)
@no_deadline
@given(count=lengths, world=st.integers(2, 9), seed=st.integers(0, 100))
def test_sums_are_within_the_rounding_error(name: str, count: int, world: int, seed: int) -> None:
    wire = WIRE_FORMATS[name]
    ranks = [numbers(seed + rank, count) for rank in range(world)]
    total = sum_along_ring(wire, ranks, [None] * world)
    largest = np.abs(np.stack(ranks)).sum(axis=0).max(initial=0)
    assert np.abs(total - np.sum(ranks, axis=0, dtype=np.float64)).max(initial=0) <= largest * (
        world * COARSENESS[name] + 1e-6
    )


@pytest.mark.parametrize("name", ROUNDING)
def test_error_feedback_loses_nothing_for_good(name: str) -> None:
    """The accumulated sum stays within one rounding error of the exact sum, however many steps there are."""
    wire, world, count, steps = WIRE_FORMATS[name], 4, 700, 200
    ranks = [numbers(rank, count, 1e-3) for rank in range(world)]
    residuals = [np.zeros(count, np.float32) for _ in range(world)]
    arrived = np.zeros(count)
    for _ in range(steps):
        arrived += sum_along_ring(wire, ranks, residuals)
    meant = steps * np.sum(ranks, axis=0, dtype=np.float64)
    kept = np.sum(residuals, axis=0, dtype=np.float64)
    np.testing.assert_allclose(arrived + kept, meant, atol=1e-5)
    one_rounding = world * 2 * COARSENESS[name] * np.abs(ranks).sum(axis=0).max()
    assert np.abs(arrived - meant).max() < one_rounding


def test_only_int8_uses_error_feedback() -> None:
    assert {name for name in NAMES if WIRE_FORMATS[name].error_feedback} == {"int8"}


def test_without_error_feedback_int8_would_never_send_small_numbers() -> None:
    """Error feedback is for numbers below half a step of their block."""
    wire = WIRE_FORMATS["int8"]
    values = np.full(256, 1e-4, np.float32)
    values[0] = 1
    total, residual = np.zeros(256), np.zeros_like(values)
    assert not decode(wire, encode(wire, values), 256)[1:].any()
    for _ in range(1000):
        total += decode(wire, encode(wire, values, None, residual), 256)
    np.testing.assert_allclose(total[1:], 1000 * 1e-4, rtol=0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_survive_encoding(name: str, poison: float) -> None:
    wire = WIRE_FORMATS[name]
    ranks = [numbers(rank, 600) for rank in range(3)]
    ranks[1][300] = poison
    total = sum_along_ring(wire, ranks, [None] * 3)
    assert not np.isfinite(total[300])
    assert np.isfinite(total[:256]).all(), "NaN or inf spread to another block"


@pytest.mark.parametrize("name", NAMES)
def test_messages_may_be_unaligned(name: str) -> None:
    wire = WIRE_FORMATS[name]
    message = encode(wire, numbers(0, 777))
    for start in range(1, 4):
        elsewhere: Bytes = np.zeros(len(message) + 4, np.uint8)[start : start + len(message)]
        elsewhere[...] = message
        assert decode(wire, elsewhere, 777).tobytes() == decoded(message, 777, DType[name.upper()]).tobytes()
