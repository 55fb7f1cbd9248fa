"""Decode JSON from another computer into dataclasses whose fields declare type and range.

The other computer may be hostile or broken. What passes has exactly the declared types; numbers are finite and in
range, lists are bounded, and text is short and safe to show. Everything else raises DecodeError, which names the field.

    @dataclass(frozen=True)
    class Reading:
        step: Annotated[int, Range(0, 1000)]
        temperature_c: Annotated[float | None, Range(-60, 200), Or(None)] = None  # None if implausible

Without a mark, numbers are limited to +-2^53, text to 400 characters, and lists to 4096 items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from phone_agent.contract.text import lines, one_line

MAX_JSON = 1 << 20  # bytes of one document: parsed, it takes up to 25 times as much memory
MAX_TEXT = 400
MAX_ITEMS = 4096
MAX_NUMBER = 1 << 53
_MAX_DEPTH = 8  # of free-form JSON

T = TypeVar("T")
Decoder = Callable[[object, str], Any]  # value and path; raises DecodeError


class DecodeError(ValueError):
    """The message names the field and what is wrong with it."""


@dataclass(frozen=True)
class Range:
    """Bounds of a number, inclusive."""

    low: float
    high: float


@dataclass(frozen=True)
class Clamp:
    """As Range, but a number outside, or NaN, becomes the nearest bound; NaN the upper one."""

    low: float
    high: float


@dataclass(frozen=True)
class Size:
    """Most characters of a text (longer ones are truncated), or most items of a list (more are an error)."""

    most: int


@dataclass(frozen=True)
class Lines:
    """A text that keeps its line breaks."""


@dataclass(frozen=True)
class Matches:
    """The whole text matches the regular expression."""

    pattern: str


@dataclass(frozen=True)
class OneOf:
    """The text is one of these."""

    choices: tuple[str, ...]


@dataclass(frozen=True)
class Key:
    """The name of the field in JSON, if it differs."""

    name: str


@dataclass(frozen=True)
class Or:
    """What an invalid value becomes, for example None for the reading of a sensor."""

    value: Any


Seconds = Annotated[float, Range(0, 1e7)]
Step = Annotated[int, Range(0, 10**9)]
Count = Annotated[int, Range(0, 10**9)]
Bytes = Annotated[int, Range(0, 1 << 50)]
Fraction = Annotated[float, Range(0, 1)]
Name = Annotated[str, Size(80)]
Reading = Annotated[float | None, Range(-1e12, 1e12), Or(None)]  # a measurement; None if implausible
Celsius = Annotated[float | None, Range(-60, 250), Or(None)]


def parse_json(text: bytes | str, limit: int = MAX_JSON) -> object:
    if len(text) > limit:
        raise DecodeError(f"a document of {len(text)} bytes: the maximum is {limit}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DecodeError("not JSON") from None


def decode(kind: type[T], raw: object) -> T:
    """`kind`: a dataclass, or any type that a field may have. Unknown fields are ignored."""
    return cast("T", _decoder(cast("Any", kind))(raw, ""))


def decode_json(kind: type[T], text: bytes | str) -> T:
    return decode(kind, parse_json(text))


def check_no_unknown_fields(kind: type[Any], raw: object) -> None:
    """For documents in which an unknown field is a mistake, such as a request."""
    unknown = set(raw) - {each.name for each in fields(kind)} if isinstance(raw, dict) else set()
    if unknown:
        raise DecodeError(f"unknown field {one_line(str(min(unknown, key=str)), 40)}")


# ------------------------------------------------------------------------------------------------ decoders by type


@cache
def _decoder(hint: Any, marks: tuple[Any, ...] = ()) -> Decoder:
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        return _decoder(inner, (*marks, *more))
    fallback = _mark(marks, Or)
    if fallback is not None:
        return _with_fallback(_decoder(hint, tuple(each for each in marks if each != fallback)), fallback.value)
    if get_origin(hint) in {Union, UnionType}:
        return _union(hint, marks)
    return _plain(hint, marks)


def _plain(hint: Any, marks: tuple[Any, ...]) -> Decoder:
    origin = get_origin(hint) or hint
    if origin is tuple:
        return _tuple(get_args(hint), marks)
    if origin in {dict, Mapping}:
        return _dict(get_args(hint), marks)
    if is_dataclass(hint):
        return _dataclass(cast("type[Any]", hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    simple: dict[Any, Callable[[tuple[Any, ...]], Decoder]] = {int: _int, float: _float, str: _str, bool: _bool}
    if hint in simple:
        return simple[hint](marks)
    if hint is object:
        return _free_form
    raise TypeError(f"no decoder for {hint}")


def _dataclass(kind: type[Any]) -> Decoder:
    hints = get_type_hints(kind, include_extras=True)
    keys = {each.name: _key(hints[each.name]) or each.name for each in fields(kind)}
    decoders = {keys[each.name]: (each.name, _decoder(hints[each.name])) for each in fields(kind)}
    required = [keys[each.name] for each in fields(kind) if each.default is each.default_factory is MISSING]

    def decode_fields(raw: object, path: str) -> Any:
        if not isinstance(raw, dict):
            raise _invalid(path, "expected an object", raw)
        missing = next((name for name in required if name not in raw), None)
        if missing is not None:
            raise DecodeError(f"{_join(path, missing)}: missing")
        found = ((key, *how) for key, how in decoders.items() if key in raw)
        return kind(**{name: read(raw[key], _join(path, key)) for key, name, read in found})

    return decode_fields


def _union(hint: Any, marks: tuple[Any, ...]) -> Decoder:
    """The first option that fits. The error is that of the last one."""
    options = [_decoder(option, marks) for option in get_args(hint) if option is not NoneType]
    optional = NoneType in get_args(hint)

    def decode_option(raw: object, path: str) -> Any:
        if raw is None and optional:
            return None
        for option in options[:-1]:
            try:
                return option(raw, path)
            except DecodeError:
                continue
        return options[-1](raw, path)

    return decode_option


def _with_fallback(inner: Decoder, value: object) -> Decoder:
    def decode_or_replace(raw: object, path: str) -> Any:
        try:
            return inner(raw, path)
        except DecodeError:
            return value

    return decode_or_replace


def _int(marks: tuple[Any, ...]) -> Decoder:
    bounds = _mark(marks, Range) or Range(-MAX_NUMBER, MAX_NUMBER)

    def decode_int(raw: object, path: str) -> int:
        if type(raw) is not int or not bounds.low <= raw <= bounds.high:
            raise _invalid(path, f"expected an integer from {bounds.low} to {bounds.high}", raw)
        return raw

    return decode_int


def _float(marks: tuple[Any, ...]) -> Decoder:
    clamp = _mark(marks, Clamp)
    bounds = clamp or _mark(marks, Range) or Range(-MAX_NUMBER, MAX_NUMBER)

    def decode_float(raw: object, path: str) -> float:
        if type(raw) not in {int, float}:
            raise _invalid(path, "expected a number", raw)
        number = cast("float", raw)
        if clamp is not None:
            return float(min(max(number, clamp.low), clamp.high)) if number == number else clamp.high  # noqa: PLR0124 (NaN)
        if not bounds.low <= number <= bounds.high:  # NaN is not in any range
            raise _invalid(path, f"expected a number from {bounds.low:g} to {bounds.high:g}", raw)
        return float(number)

    return decode_float


def _bool(_: tuple[Any, ...]) -> Decoder:
    def decode_bool(raw: object, path: str) -> bool:
        if type(raw) is not bool:
            raise _invalid(path, "expected true or false", raw)
        return raw

    return decode_bool


def _str(marks: tuple[Any, ...]) -> Decoder:
    limit, sanitize = (_mark(marks, Size) or Size(MAX_TEXT)).most, lines if _mark(marks, Lines) else one_line
    choices, matches = _mark(marks, OneOf), _mark(marks, Matches)
    pattern = re.compile(matches.pattern) if matches else None

    def decode_str(raw: object, path: str) -> str:
        if type(raw) is not str:
            raise _invalid(path, "expected text", raw)
        if choices and raw not in choices.choices:
            raise _invalid(path, f"expected one of {', '.join(choices.choices)}", raw)
        if pattern and (len(raw) > limit or not pattern.fullmatch(raw)):
            raise _invalid(path, "malformed", raw)
        return sanitize(raw, limit)

    return decode_str


def _enum(kind: type[Enum]) -> Decoder:
    def decode_enum(raw: object, path: str) -> Enum:
        try:
            return kind(raw)
        except (ValueError, TypeError):
            raise _invalid(path, f"expected one of {', '.join(str(each.value) for each in kind)}", raw) from None

    return decode_enum


def _tuple(items: tuple[Any, ...], marks: tuple[Any, ...]) -> Decoder:
    endless = items[-1] is Ellipsis
    most = (_mark(marks, Size) or Size(MAX_ITEMS)).most if endless else len(items)
    decoders = [_decoder(each) for each in (items[:1] if endless else items)]

    def decode_tuple(raw: object, path: str) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            raise _invalid(path, "expected a list", raw)
        if len(raw) > most or (not endless and len(raw) != most):
            raise _invalid(path, f"expected {'at most ' * endless}{most} items, not {len(raw)}", None)
        each = decoders * len(raw) if endless else decoders
        return tuple(read(value, f"{path}[{place}]") for place, (read, value) in enumerate(zip(each, raw, strict=True)))

    return decode_tuple


def _dict(items: tuple[Any, ...], marks: tuple[Any, ...]) -> Decoder:
    most, read_key, read = (_mark(marks, Size) or Size(MAX_ITEMS)).most, _decoder(items[0]), _decoder(items[1])

    def decode_dict(raw: object, path: str) -> dict[Any, Any]:
        if not isinstance(raw, dict):
            raise _invalid(path, "expected an object", raw)
        if len(raw) > most:
            raise _invalid(path, f"expected at most {most} items, not {len(raw)}", None)
        return {read_key(key, path): read(value, _join(path, one_line(key, 40))) for key, value in raw.items()}

    return decode_dict


def _free_form(raw: object, path: str, depth: int = _MAX_DEPTH) -> object:
    """JSON of any structure, bounded and with harmless text."""
    if raw is None or type(raw) is bool:
        return raw
    if type(raw) in {int, float}:
        return _NUMBER(raw, path)
    if isinstance(raw, str):
        return one_line(raw, MAX_TEXT)
    if depth == 0 or len(cast("list[object]", raw)) > MAX_ITEMS:
        raise DecodeError(f"{path}: too deep or too long")
    if isinstance(raw, list):
        return [_free_form(value, path, depth - 1) for value in raw]
    values = cast("dict[str, object]", raw)
    return {one_line(key, MAX_TEXT): _free_form(value, path, depth - 1) for key, value in values.items()}


def _key(hint: Any) -> str | None:
    key = _mark(get_args(hint), Key) if get_origin(hint) is Annotated else None
    return key.name if key else None


def _mark(marks: tuple[Any, ...], kind: type[T]) -> T | None:
    """The outermost mark wins."""
    return next((each for each in marks if isinstance(each, kind)), None)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _invalid(path: str, expectation: str, raw: object) -> DecodeError:
    """The value itself is shown briefly; a nested one only by its type."""
    shown = "" if raw is None else f", not {_shown(raw)}"
    return DecodeError(f"{path}: {expectation}{shown}" if path else f"{expectation}{shown}")


def _shown(raw: object) -> str:
    if isinstance(raw, int) and abs(raw) > MAX_NUMBER:
        return "a huge number"
    if isinstance(raw, str):
        return f"'{one_line(raw, 60)}'"
    return str(raw) if isinstance(raw, int | float) else f"a {type(raw).__name__}"


_NUMBER = _decoder(int | float)
