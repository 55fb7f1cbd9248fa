"""The one place where arguments become text for a phone's shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def command_line(argv: Sequence[str], env: Mapping[str, str] | None = None) -> bytes:
    """`A=1 'program' argument…`; sshd on a phone accepts no environment, so variables travel in the line."""
    if not argv:
        raise ValueError("empty command")
    assignments = [f"{_variable(name)}={shlex.quote(value)}" for name, value in (env or {}).items()]
    # The program is always quoted: bare, a name such as `if` or `A=1` would mean something else to the shell. Quoted,
    # `%1` still is a job of bash's.
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
