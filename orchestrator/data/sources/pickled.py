"""Reads the pickles of CIFAR's python archives, and no others: without the pickle module, which runs what it reads.

They hold a dictionary of bytes, integers, lists of these and one numpy array of bytes, written by Python 2 with
protocol 2 or 1. A small machine understands the few instructions that this takes; `reconstruct` an array and
`encode` latin-1 text are the only calls it knows. Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

MOST_DEPTH = 10_000_000
LONGEST_INTEGER = 8  # bytes
_MARK: Final = object()
_RECONSTRUCT, _ARRAY, _DTYPE, _ENCODE = "reconstruct", "ndarray", "dtype", "encode"
_GLOBALS = {
    b"numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    b"numpy._core.multiarray _reconstruct": _RECONSTRUCT,
    b"numpy ndarray": _ARRAY,
    b"numpy dtype": _DTYPE,
    b"_codecs encode": _ENCODE,
}


class PickleRefusedError(ValueError):
    """Not one of the pickles this is for."""


class _Name(str):
    """One of the known names."""

    __slots__ = ()


class _Array:
    """An array until its state is known."""

    value: Any = None


class _Type:
    """numpy's type of numbers; bytes only."""


def read(raw: bytes) -> Any:
    """Text is bytes, as in Python 2."""
    try:
        return _Machine(raw).run()
    except (IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, PickleRefusedError):
            raise
        raise PickleRefusedError(f"not a pickle of such a dataset ({type(error).__name__})") from None


class _Machine:
    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self._take(1)
            if code == b".":
                (result,) = self._stack
                return _finished(result)
            if len(self._stack) > MOST_DEPTH:
                raise PickleRefusedError("it never ends")
            try:
                do = _CODES[code]
            except KeyError:
                raise PickleRefusedError(f"it does what no such dataset needs (instruction {code!r})") from None
            do(self)

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._raw):
            raise PickleRefusedError("it is cut off")
        part = self._raw[self._at : end]
        self._at = end
        return part

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> bytes:
        end = self._raw.index(b"\n", self._at)
        return self._take(end + 1 - self._at)[:-1]

    def _since_mark(self) -> list[Any]:
        at = next((place for place in reversed(range(len(self._stack))) if self._stack[place] is _MARK), None)
        if at is None:
            raise PickleRefusedError("it ends what it did not begin")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def protocol(self) -> None:
        if self._number(1) > 3:
            raise PickleRefusedError("its protocol is newer than those of such datasets")

    def known_name(self) -> None:
        name = self._line() + b" " + self._line()
        if name not in _GLOBALS:
            raise PickleRefusedError(f"it calls {name!r}, which no such dataset needs")
        self.push(_Name(_GLOBALS[name]))

    def call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise PickleRefusedError("it calls what is not a function")
        if function == _RECONSTRUCT and arguments and arguments[0] == _ARRAY:
            self.push(_Array())
        elif function == _DTYPE and arguments and arguments[0] in {b"u1", b"|u1"}:
            self.push(_Type())
        elif function == _ENCODE and len(arguments) == 2 and arguments[1] in {b"latin1", b"latin-1"}:
            self.push(_text(arguments[0]).decode("utf-8").encode("latin-1"))
        else:
            raise PickleRefusedError(f"it calls {function} in a way no such dataset does")

    def build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, _Array):
            _, shape, kind, fortran, content = state
            if not isinstance(kind, _Type) or fortran or len(content) != prod(shape):
                raise PickleRefusedError("its array is not one of bytes")
            target.value = np.frombuffer(content, np.uint8).reshape(shape)
        elif not isinstance(target, _Type):
            raise PickleRefusedError("it changes what is not an array")

    def remember(self, size: int) -> None:
        self._memo[self._number(size)] = self._stack[-1]

    def recall(self, size: int) -> None:
        self.push(self._memo[self._number(size)])

    def remember_line(self) -> None:
        self._memo[int(self._line())] = self._stack[-1]

    def recall_line(self) -> None:
        self.push(self._memo[int(self._line())])

    def tuple_of(self, count: int) -> None:
        if count > len(self._stack):
            raise PickleRefusedError("it takes from an empty stack")
        items = tuple(self._stack[len(self._stack) - count :]) if count else ()
        if count:
            del self._stack[-count:]
        self.push(items)

    def append(self) -> None:
        value = self._stack.pop()
        self._list().append(value)

    def extend(self) -> None:
        items = self._since_mark()
        self._list().extend(items)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._dictionary()[_text(key)] = value

    def set_items(self) -> None:
        items = self._since_mark()
        self._dictionary().update({_text(key): value for key, value in zip(items[::2], items[1::2], strict=True)})

    def long_text(self) -> None:
        self.push(self._take(self._number(4)))

    def short_text(self) -> None:
        self.push(self._take(self._number(1)))

    def long_integer(self) -> None:
        size = self._number(1)
        if size > LONGEST_INTEGER:
            raise PickleRefusedError("its numbers are too long")
        self.push(int.from_bytes(self._take(size), "little", signed=True))

    def integer_line(self) -> None:
        line = self._line()
        if len(line) > 20:
            raise PickleRefusedError("its numbers are too long")
        self.push({b"00": False, b"01": True}.get(line, int(line)))

    def text_line(self) -> None:
        line = self._line()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in {b"'", b'"'} or b"\\" in line:
            raise PickleRefusedError("its text is written in a way no such dataset is")
        self.push(line[1:-1])

    def signed(self) -> None:
        self.push(int.from_bytes(self._take(4), "little", signed=True))

    def _list(self) -> list[Any]:
        if not isinstance(self._stack[-1], list):
            raise PickleRefusedError("it adds to what is not a list")
        return self._stack[-1]

    def _dictionary(self) -> dict[bytes, Any]:
        if not isinstance(self._stack[-1], dict):
            raise PickleRefusedError("it adds to what is not a dictionary")
        return self._stack[-1]


def _text(value: Any) -> bytes:
    if type(value) is not bytes:
        raise PickleRefusedError("it has something else where text should be")
    return value


def _finished(value: Any) -> Any:
    """The one dictionary, arrays in place; nothing nested deeper than lists of numbers or text."""
    if not isinstance(value, dict):
        raise PickleRefusedError("it is not a dictionary")
    return {key: item.value if isinstance(item, _Array) else item for key, item in value.items()}


_CODES: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"(": lambda machine: machine.push(_MARK),
    b"}": lambda machine: machine.push({}),
    b"]": lambda machine: machine.push([]),
    b")": lambda machine: machine.push(()),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),  # noqa: FBT003 - the value itself
    b"\x89": lambda machine: machine.push(False),  # noqa: FBT003
    b"U": _Machine.short_text,
    b"C": _Machine.short_text,
    b"T": _Machine.long_text,
    b"B": _Machine.long_text,
    b"X": _Machine.long_text,
    b"S": _Machine.text_line,
    b"I": _Machine.integer_line,
    b"K": lambda machine: machine.push(machine._number(1)),  # noqa: SLF001 - its own table
    b"M": lambda machine: machine.push(machine._number(2)),  # noqa: SLF001
    b"J": _Machine.signed,
    b"\x8a": _Machine.long_integer,
    b"c": _Machine.known_name,
    b"R": _Machine.call,
    b"b": _Machine.build,
    b"q": lambda machine: machine.remember(1),
    b"r": lambda machine: machine.remember(4),
    b"h": lambda machine: machine.recall(1),
    b"j": lambda machine: machine.recall(4),
    b"p": _Machine.remember_line,
    b"g": _Machine.recall_line,
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"t": lambda machine: machine.push(tuple(machine._since_mark())),  # noqa: SLF001
    b"l": lambda machine: machine.push(machine._since_mark()),  # noqa: SLF001
    b"a": _Machine.append,
    b"e": _Machine.extend,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
}
