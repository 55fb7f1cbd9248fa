"""A safe reader for the pickles in the Python version of CIFAR. The pickle module would execute code from the file.

These pickles contain a dictionary of bytes, integers, lists of them and one numpy array of bytes, written by Python 2
with protocol 1 or 2. A small stack machine implements only the opcodes they use; the only calls it allows create an
array and encode latin-1 text. Anything else is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

MOST_DEPTH = 10_000_000
LONGEST_INTEGER = 8  # bytes
MOST_DIMENSIONS = 4
_MARK: Final = object()
_RECONSTRUCT, _ARRAY, _DTYPE, _ENCODE = "reconstruct", "ndarray", "dtype", "encode"
_GLOBALS = {
    b"numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    b"numpy._core.multiarray _reconstruct": _RECONSTRUCT,
    b"numpy ndarray": _ARRAY,
    b"numpy dtype": _DTYPE,
    b"_codecs encode": _ENCODE,
}


class UnsupportedPickleError(ValueError):
    """Not a CIFAR pickle."""


class _Name(str):
    """One of the allowed globals."""

    __slots__ = ()


class _Array:
    """An array whose state is not known yet."""

    value: Any = None


class _Type:
    """A numpy dtype; bytes only."""


def read(raw: bytes) -> Any:
    """Strings are returned as bytes, as in Python 2."""
    try:
        return _StackMachine(raw).run()
    except (IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, UnsupportedPickleError):
            raise
        raise UnsupportedPickleError(f"malformed pickle ({type(error).__name__})") from None


class _StackMachine:
    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._encoded = 0  # bytes of text

    def run(self) -> Any:
        while True:
            code = self._read(1)
            if code == b".":
                (result,) = self._stack
                return _finished(result)
            if len(self._stack) > MOST_DEPTH:
                raise UnsupportedPickleError("no STOP opcode")
            try:
                do = _CODES[code]
            except KeyError:
                raise UnsupportedPickleError(f"unsupported opcode {code!r}") from None
            do(self)

    def _read(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._raw):
            raise UnsupportedPickleError("truncated")
        part = self._raw[self._at : end]
        self._at = end
        return part

    def _number(self, size: int) -> int:
        return int.from_bytes(self._read(size), "little")

    def _line(self) -> bytes:
        end = self._raw.index(b"\n", self._at)
        return self._read(end + 1 - self._at)[:-1]

    def _since_mark(self) -> list[Any]:
        at = next((place for place in reversed(range(len(self._stack))) if self._stack[place] is _MARK), None)
        if at is None:
            raise UnsupportedPickleError("no matching MARK")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def protocol(self) -> None:
        if self._number(1) > 3:
            raise UnsupportedPickleError("unsupported protocol version")

    def known_name(self) -> None:
        name = self._line() + b" " + self._line()
        if name not in _GLOBALS:
            raise UnsupportedPickleError(f"unsupported global {name!r}")
        self.push(_Name(_GLOBALS[name]))

    def call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise UnsupportedPickleError("REDUCE on something that is not callable")
        if function == _RECONSTRUCT and arguments and arguments[0] == _ARRAY:
            self.push(_Array())
        elif function == _DTYPE and arguments and arguments[0] in {b"u1", b"|u1"}:
            self.push(_Type())
        elif function == _ENCODE and len(arguments) == 2 and arguments[1] in {b"latin1", b"latin-1"}:
            self._encoded += len(_text(arguments[0]))
            if self._encoded > len(self._raw):
                raise UnsupportedPickleError("encodes the same text over and over")
            self.push(arguments[0].decode("utf-8").encode("latin-1"))
        else:
            raise UnsupportedPickleError(f"unsupported arguments for {function}")

    def build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, _Array):
            _, shape, kind, fortran, content = state
            if not isinstance(kind, _Type) or fortran or len(shape) > MOST_DIMENSIONS or len(content) != prod(shape):
                raise UnsupportedPickleError("not a contiguous uint8 array of the declared shape")
            target.value = np.frombuffer(content, np.uint8).reshape(shape)
        elif not isinstance(target, _Type):
            raise UnsupportedPickleError("invalid pickle: BUILD applied to something other than an array")

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
            raise UnsupportedPickleError("stack underflow")
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
        self.push(self._read(self._number(4)))

    def short_text(self) -> None:
        self.push(self._read(self._number(1)))

    def long_integer(self) -> None:
        size = self._number(1)
        if size > LONGEST_INTEGER:
            raise UnsupportedPickleError("integer too long")
        self.push(int.from_bytes(self._read(size), "little", signed=True))

    def integer_line(self) -> None:
        line = self._line()
        if len(line) > 20:
            raise UnsupportedPickleError("integer too long")
        self.push({b"00": False, b"01": True}.get(line, int(line)))

    def text_line(self) -> None:
        line = self._line()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in {b"'", b'"'} or b"\\" in line:
            raise UnsupportedPickleError("unsupported string escape")
        self.push(line[1:-1])

    def signed(self) -> None:
        self.push(int.from_bytes(self._read(4), "little", signed=True))

    def _list(self) -> list[Any]:
        if not isinstance(self._stack[-1], list):
            raise UnsupportedPickleError("invalid pickle: APPEND applied to something other than a list")
        return self._stack[-1]

    def _dictionary(self) -> dict[bytes, Any]:
        if not isinstance(self._stack[-1], dict):
            raise UnsupportedPickleError("SETITEM on something that is not a dictionary")
        return self._stack[-1]


def _text(value: Any) -> bytes:
    if type(value) is not bytes:
        raise UnsupportedPickleError("expected a string")
    return value


def _finished(value: Any) -> Any:
    """The result: one dictionary with arrays, numbers, strings and flat lists."""
    if not isinstance(value, dict):
        raise UnsupportedPickleError("the top-level object is not a dictionary")
    return {key: item.value if isinstance(item, _Array) else item for key, item in value.items()}


_CODES: dict[bytes, Callable[[_StackMachine], None]] = {
    b"\x80": _StackMachine.protocol,
    b"(": lambda machine: machine.push(_MARK),
    b"}": lambda machine: machine.push({}),
    b"]": lambda machine: machine.push([]),
    b")": lambda machine: machine.push(()),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),  # noqa: FBT003 - the value itself
    b"\x89": lambda machine: machine.push(False),  # noqa: FBT003
    b"U": _StackMachine.short_text,
    b"C": _StackMachine.short_text,
    b"T": _StackMachine.long_text,
    b"B": _StackMachine.long_text,
    b"X": _StackMachine.long_text,
    b"S": _StackMachine.text_line,
    b"I": _StackMachine.integer_line,
    b"K": lambda machine: machine.push(machine._number(1)),  # noqa: SLF001 - its own table
    b"M": lambda machine: machine.push(machine._number(2)),  # noqa: SLF001
    b"J": _StackMachine.signed,
    b"\x8a": _StackMachine.long_integer,
    b"c": _StackMachine.known_name,
    b"R": _StackMachine.call,
    b"b": _StackMachine.build,
    b"q": lambda machine: machine.remember(1),
    b"r": lambda machine: machine.remember(4),
    b"h": lambda machine: machine.recall(1),
    b"j": lambda machine: machine.recall(4),
    b"p": _StackMachine.remember_line,
    b"g": _StackMachine.recall_line,
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"t": lambda machine: machine.push(tuple(machine._since_mark())),  # noqa: SLF001
    b"l": lambda machine: machine.push(machine._since_mark()),  # noqa: SLF001
    b"a": _StackMachine.append,
    b"e": _StackMachine.extend,
    b"s": _StackMachine.set_item,
    b"u": _StackMachine.set_items,
}
