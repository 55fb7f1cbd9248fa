"""Quote arguments for the shell of a phone. The only place that does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def command_line(argv: Sequence[str], env: Mapping[str, str] | None = None) -> bytes:
    """`A=1 'program' argument…`; sshd in Termux accepts no environment, so variables are part of the line."""
    if not argv:
        raise ValueError("empty command")
    assignments = [f"{_variable(name)}={shlex.quote(value)}" for name, value in (env or {}).items()]
    # Always quote the program: unquoted, a name such as `if` or `A=1` is shell syntax. Even quoted, bash takes `%1` for
    # a job.
    if argv[0].startswith("%"):
        raise ValueError(f"not a program: {argv[0]!r}")
    line = " ".join([*assignments, _always_quote(argv[0]), *map(shlex.quote, argv[1:])])
    if "\0" in line:
        raise ValueError("a command cannot contain NUL")
    return line.encode("utf-8", "surrogateescape")


def _variable(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a variable name: {name!r}")
    return name


def _always_quote(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"
