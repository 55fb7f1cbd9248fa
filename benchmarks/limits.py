"""Memory limits for processes, to simulate the memory of a phone.

A control group counts every page that a process touches and kills it at the limit, as Android does. If no control group
can be created, RLIMIT_DATA limits private mappings, touched or not, which is stricter. RLIMIT_AS would also count
libraries and thread stacks that are never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
ENTER = 'echo $$ > "$0"/cgroup.procs && exec "$@"'


@dataclass(frozen=True)
class Limit:
    """`inside` is a prefix for the command to limit."""

    kind: str
    inside: tuple[str, ...]


@contextmanager
def memory_limit(amount: int) -> Iterator[Limit]:
    group = _group(amount)
    if group is None:
        yield Limit("RLIMIT_DATA", ("prlimit", f"--data={amount}:{amount}"))
        return
    try:
        yield Limit(f"control group {group}", ("/bin/sh", "-c", ENTER, str(group)))
    finally:
        with suppress(OSError):
            group.rmdir()


def _group(amount: int) -> Path | None:
    """A new control group (v1 or v2) with this limit and no swap, or None if it cannot be created."""
    for base, limit, swap in (
        (V1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        (V2, "memory.max", "memory.swap.max"),
    ):
        group = base / f"benchmark-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(amount))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        with suppress(OSError):  # the kernel has no swap accounting
            (group / swap).write_text("0" if base is V2 else str(amount))
        return group
    return None
