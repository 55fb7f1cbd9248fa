"""A good file, a little wrong: where parsers break is near what they expect."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

INSERTED = (b"\0", b"\xff" * 8, b"\n", b'"', b"{", b"[" * 50, b"-1", b"1e999", b"null", b"..", b"/", b"\x1b[2J", b"NaN")
SIZES = (0, 1, 127, 255, 2**31 - 1, 2**32 - 1, 2**63 - 1)


@st.composite
def mutated(draw: st.DrawFn, good: bytes) -> bytes:
    """Some bytes changed, cut out, put in, doubled; or the end missing."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 8))
        change = draw(st.sampled_from(("flip", "put", "number", "cut", "double", "end")))
        if change == "flip" and place < len(data):
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif change == "put":
            data[place:place] = draw(st.sampled_from(INSERTED) | st.binary(max_size=8))
        elif change == "number":
            data[place : place + 8] = draw(st.sampled_from(SIZES)).to_bytes(8, draw(st.sampled_from(("little", "big"))))
        elif change == "cut":
            del data[place : place + length]
        elif change == "double":
            data[place:place] = data[place : place + 4 * length]
        elif change == "end":
            del data[place:]
    return bytes(data)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just("../up"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def restructured(draw: st.DrawFn, good: bytes) -> bytes:
    """JSON that is still JSON, with something else in one or two places."""
    document = json.loads(good)
    for _ in range(draw(st.integers(1, 2))):
        document = _replaced(draw, document)
    return json.dumps(document).encode()


def _replaced(draw: st.DrawFn, inside: Any) -> Any:
    """Goes down some way, and puts something else there, or leaves it out."""
    if isinstance(inside, dict) and inside and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(inside)))
        if not draw(st.integers(0, 9)):
            return {name: value for name, value in inside.items() if name != key}
        return {**inside, key: _replaced(draw, inside[key])}
    if isinstance(inside, list) and inside and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(inside) - 1))
        return [*inside[:place], _replaced(draw, inside[place]), *inside[place + 1 :]]
    return draw(ANYTHING)
