"""Somebody for phones to call: this computer, on its wired address, saying who it sees calling."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PATIENCE_S = 8.0
_LONGEST_GREETING = 64


@contextmanager
def doorbell(listener: socket.socket) -> Iterator[tuple[str, int]]:
    """Answers until the end of the block; yields the address to call."""
    answering = threading.Thread(target=_answer_all, args=(listener,), daemon=True, name="doorbell")
    answering.start()
    host, port = listener.getsockname()[:2]
    try:
        yield str(host), int(port)
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        answering.join()
        listener.close()


def _answer_all(listener: socket.socket) -> None:
    with suppress(OSError):  # the listener was shut down
        while True:
            call, caller = listener.accept()
            with call, suppress(OSError):  # whoever calls may hang up
                call.settimeout(_PATIENCE_S)
                call.recv(_LONGEST_GREETING)
                call.sendall(f"{caller[0]}\n".encode())
