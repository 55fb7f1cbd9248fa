"""What travels, wire by wire: against numpy to the bit, any length, nothing lost for good, nothing hidden."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phone_agent.comm.wire import WIRES, Bytes, Coder, Floats, Wire
from phone_agent.core.ops import DType
from tests.phone_agent.core.wire_cases import decoded, encoded

unhurried = settings(deadline=None)
NAMES = tuple(WIRES)
ROUNDING = tuple(name for name in NAMES if not WIRES[name].exact)
lengths = st.one_of(st.integers(0, 3), st.integers(250, 260), st.integers(0, 3000))
# Half a step of 127, of 11 and of 8 bits, against the largest of a block.
COARSENESS = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.5 / 127}


def numbers(seed: int, count: int, scale: float = 1.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(count) * scale).astype(np.float32)


def sent(
    wire: Wire,
    values: Floats,
    arrived: Bytes | None = None,
    residual: Floats | None = None,
    *,
    write_back: bool = False,
) -> Bytes:
    to = np.full(wire.size(values.size), 77, np.uint8)
    Coder(wire).encode(values, to, arrived, residual, write_back=write_back)
    return to


def taken(wire: Wire, letter: Bytes, count: int) -> Floats:
    values = np.empty(count, np.float32)
    Coder(wire).decode(letter, values)
    return values


def along(wire: Wire, ranks: Sequence[Floats], residuals: Sequence[Floats | None]) -> Floats:
    """A piece on its way through a ring: encoded by the first, passed on with more added, finished by the last."""
    travelling = sent(wire, ranks[0].copy(), None, residuals[0])
    for own, residual in zip(ranks[1:-1], residuals[1:-1], strict=True):
        travelling = sent(wire, own.copy(), travelling, residual)
    last = ranks[-1].copy()
    travelling = sent(wire, last, travelling, residuals[-1], write_back=True)
    everybody = taken(wire, travelling, last.size)
    assert everybody.tobytes() == last.tobytes(), "the last rank has other bits than those who take what it sent"
    return everybody


@pytest.mark.parametrize("name", NAMES)
@unhurried
@given(count=lengths, seed=st.integers(0, 100))
def test_bytes_are_numpys(name: str, count: int, seed: int) -> None:
    wire, dtype = WIRES[name], DType[name.upper()]
    values, more = numbers(seed, count), numbers(seed + 1, count)
    letter = sent(wire, values.copy())
    assert letter.tobytes() == encoded(values, dtype).tobytes()
    assert len(letter) == wire.size(count)
    sums = more.copy()
    Coder(wire).decode(letter, sums, accumulate=True)
    np.testing.assert_array_equal(sums, more + decoded(letter, count, dtype))
    passed_on = sent(wire, more.copy(), letter)
    assert passed_on.tobytes() == encoded(sums, dtype).tobytes()
    Coder(wire).encode(more.copy(), letter, letter)
    assert letter.tobytes() == passed_on.tobytes(), "in the place of what arrived it is something else"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1.0, 1e9])
def test_rounds_to_the_nearest_wherever_gradients_lie(name: str, scale: float) -> None:
    wire = WIRES[name]
    values = numbers(0, 5000, scale)
    arrived = taken(wire, sent(wire, values.copy()), 5000)
    largest = np.abs(np.pad(values, (0, -5000 % 256)).reshape(-1, 256)).max(axis=1).repeat(256)[:5000]
    assert (np.abs(arrived - values) <= 1.0001 * COARSENESS[name] * largest).all()


@pytest.mark.parametrize("name", NAMES)
@unhurried
@given(count=lengths, world=st.integers(2, 9), seed=st.integers(0, 100))
def test_sums_are_close(name: str, count: int, world: int, seed: int) -> None:
    wire = WIRES[name]
    ranks = [numbers(seed + rank, count) for rank in range(world)]
    total = along(wire, ranks, [None] * world)
    largest = np.abs(np.stack(ranks)).sum(axis=0).max(initial=0)
    assert np.abs(total - np.sum(ranks, axis=0, dtype=np.float64)).max(initial=0) <= largest * (
        world * COARSENESS[name] + 1e-6
    )


@pytest.mark.parametrize("name", ROUNDING)
def test_with_residuals_nothing_is_lost_for_good(name: str) -> None:
    """However often the same is sent, the sum of what arrives stays within one rounding of what was meant."""
    wire, world, count, steps = WIRES[name], 4, 700, 200
    ranks = [numbers(rank, count, 1e-3) for rank in range(world)]
    residuals = [np.zeros(count, np.float32) for _ in range(world)]
    arrived = np.zeros(count)
    for _ in range(steps):
        arrived += along(wire, ranks, residuals)
    meant = steps * np.sum(ranks, axis=0, dtype=np.float64)
    kept = np.sum(residuals, axis=0, dtype=np.float64)
    np.testing.assert_allclose(arrived + kept, meant, atol=1e-5)
    one_rounding = world * 2 * COARSENESS[name] * np.abs(ranks).sum(axis=0).max()
    assert np.abs(arrived - meant).max() < one_rounding


def test_only_int8_is_so_coarse_that_it_wants_residuals() -> None:
    assert {name for name in NAMES if WIRES[name].feedback} == {"int8"}


def test_without_residuals_int8_would_never_send_what_is_small() -> None:
    """What feedback is for: a dtype below half a step of its block."""
    wire = WIRES["int8"]
    values = np.full(256, 1e-4, np.float32)
    values[0] = 1
    total, residual = np.zeros(256), np.zeros_like(values)
    assert not taken(wire, sent(wire, values), 256)[1:].any()
    for _ in range(1000):
        total += taken(wire, sent(wire, values, None, residual), 256)
    np.testing.assert_allclose(total[1:], 1000 * 1e-4, rtol=0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_shows(name: str, poison: float) -> None:
    wire = WIRES[name]
    ranks = [numbers(rank, 600) for rank in range(3)]
    ranks[1][300] = poison
    total = along(wire, ranks, [None] * 3)
    assert not np.isfinite(total[300])
    assert np.isfinite(total[:256]).all(), "another block was poisoned as well"


@pytest.mark.parametrize("name", NAMES)
def test_bytes_may_lie_anywhere(name: str) -> None:
    wire = WIRES[name]
    letter = sent(wire, numbers(0, 777))
    for start in range(1, 4):
        elsewhere: Bytes = np.zeros(len(letter) + 4, np.uint8)[start : start + len(letter)]
        elsewhere[...] = letter
        assert taken(wire, elsewhere, 777).tobytes() == decoded(letter, 777, DType[name.upper()]).tobytes()
