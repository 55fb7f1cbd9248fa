"""Hostile inputs, made from good ones by a seeded random generator: where parsers break is near what they expect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

INSERTED = (
    b"\0", b"\xff" * 8, b"\n", b'"', b"{", b"[" * 50, b"-1", b"1e999", b"null", b"..", b"/", b"\x1b[2J", b"NaN",
    b"\xe2\x80\xae", b"99999999", b"1.7e308",
)  # fmt: skip
NUMBERS = (0, 1, -1, 127, 255, 2**31 - 1, 2**32 - 1, 2**53 + 1, 2**63 - 1, 99_999_999, 10**400)
VALUES: tuple[Any, ...] = (
    *NUMBERS, None, True, False, 0.0, -0.0, 1e-320, 1.7e308, -1.7e308, float("inf"), float("nan"), "", "x",
    "../../up", "\x1b]0;owned\x07", "\x1b[2J", "\u202egnp", "\ud800", "a" * 2000, [], {}, [[]], [None], {"": None},
    [1] * 5000, [[0, 1]], ["x", 2], {"a": {"b": {"c": [1]}}},
)  # fmt: skip
MAX_CHANGES = 6


class Mutator:
    """`mutate` returns another hostile version of one of the corpus with every call."""

    def __init__(self, corpus: Sequence[bytes], seed: str) -> None:
        self._corpus = corpus
        self._documents = [_parse(each) for each in corpus]
        self._random = Random(seed)  # noqa: S311 (tests)

    def mutate(self) -> bytes:
        random = self._random
        place = random.randrange(len(self._corpus))
        documents = self._documents[place]
        if documents and random.random() < 0.7:
            return self._restructured(documents)
        if random.random() < 0.03:
            return random.randbytes(random.randrange(300))
        return self._changed(self._corpus[place])

    def _restructured(self, documents: list[Any]) -> bytes:
        """Lines that are still JSON, with something else in a few places; some lines missing, doubled or moved."""
        lines = list(documents)
        for _ in range(self._random.randint(1, 3)):
            place = self._random.randrange(len(lines))
            lines[place] = self._replaced(lines[place])
        if len(lines) > 1 and self._random.random() < 0.3:
            self._random.shuffle(lines)
            lines = lines[: self._random.randint(1, len(lines))]
        return b"\n".join(json.dumps(line).encode() for line in lines)

    def _replaced(self, inside: Any) -> Any:
        """Goes down some way, and puts something else there, or leaves it out."""
        random = self._random
        if isinstance(inside, dict) and inside and random.random() < 0.95:
            key = random.choice(list(inside))
            if random.random() < 0.1:
                return {name: value for name, value in inside.items() if name != key}
            return {**inside, key: self._replaced(inside[key])}
        if isinstance(inside, list) and inside and random.random() < 0.7:
            place = random.randrange(len(inside))
            return [*inside[:place], self._replaced(inside[place]), *inside[place + 1 :]]
        return random.choice(VALUES)

    def _changed(self, good: bytes) -> bytes:
        """Some bytes changed, cut out, put in, doubled; or the end missing."""
        random, data = self._random, bytearray(good)
        for _ in range(random.randint(1, MAX_CHANGES)):
            place, length = random.randint(0, len(data)), random.randint(0, 8)
            match random.randrange(6):
                case 0 if place < len(data):
                    data[place] ^= 1 << random.randrange(8)
                case 1:
                    data[place:place] = random.choice(INSERTED)
                case 2:
                    order = random.choice(("little", "big"))
                    data[place : place + 8] = (random.choice(NUMBERS) % 2**64).to_bytes(8, order)  # type: ignore[arg-type]
                case 3:
                    del data[place : place + length]
                case 4:
                    data[place:place] = data[place : place + 4 * length]
                case 5 if random.random() < 0.3:
                    del data[place:]
        return bytes(data)


def _parse(good: bytes) -> list[Any]:
    """The JSON documents of a text with one per line; nothing if it is something else."""
    try:
        return [json.loads(line) for line in good.splitlines()] if good[:1] in {b"{", b"["} else []
    except ValueError:
        return []
