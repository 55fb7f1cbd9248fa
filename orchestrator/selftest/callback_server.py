"""A TCP server on the wired address of the host. Phones connect to it and receive the address they were seen with."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TIMEOUT_S = 8.0
_MAX_GREETING_BYTES = 64


@contextmanager
def callback_server(listener: socket.socket) -> Iterator[tuple[str, int]]:
    """Serves until the end of the block; yields the address to connect to."""
    thread = threading.Thread(target=_serve, args=(listener,), daemon=True, name="callback-server")
    thread.start()
    host, port = listener.getsockname()[:2]
    try:
        yield str(host), int(port)
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        thread.join()
        listener.close()


def _serve(listener: socket.socket) -> None:
    with suppress(OSError):  # the listener was shut down
        while True:
            connection, client = listener.accept()
            with connection, suppress(OSError):  # the client may disconnect
                connection.settimeout(_TIMEOUT_S)
                connection.recv(_MAX_GREETING_BYTES)
                connection.sendall(f"{client[0]}\n".encode())
