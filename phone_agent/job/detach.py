"""Detaches from the SSH session by a double fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def detach(work: Callable[[int], None], log: Path) -> str:
    """Run `work` in a process that outlives this one, with its output in `log`.

    `work` gets a pipe for one reply, which it must close. Returns the reply.
    """
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(reader)
            _run(work, writer, log)
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "r", encoding="utf-8") as reply:
        return reply.read()


def _run(work: Callable[[int], None], writer: int, log: Path) -> None:
    """Never returns: the code above the fork belongs to the parent."""
    try:
        _redirect(log)
        work(writer)
    except BaseException:  # noqa: BLE001 - nothing above could catch it; it goes to the log
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _redirect(log: Path) -> None:
    """An open stdin, stdout or stderr would keep the SSH session open."""
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
