"""Read-only HTTP server for snapshots, on the wired network only, while a provision runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_IDLE_SECONDS: Final = 30.0


@contextmanager
def serve(root: Path, listener: socket.socket, peers: IPv4Network) -> Iterator[str]:
    """Serve the files below `root`; yields the URL, such as http://10.77.0.1:40123."""
    server = _Server(root.resolve(), listener, peers)
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="mirror", daemon=True)
    thread.start()
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False  # a lost connection must not delay the end of the run

    def __init__(self, root: Path, listener: socket.socket, peers: IPv4Network) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.root = root
        self._peers = peers

    def verify_request(self, request: Any, client_address: Any) -> bool:
        del request
        return ip_address(client_address[0]) in self._peers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignored: apt on the phone reports a broken connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "clusterctl"
    sys_version = ""
    timeout = _IDLE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        if file := self._send_headers():
            with file.open("rb") as source:
                self.connection.sendfile(source)

    def do_HEAD(self) -> None:
        self._send_headers()

    def _send_headers(self) -> Path | None:
        """Returns the file to send as the body, or None after a 404."""
        file = resolve(self.server.root, self.path)
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        return file

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  name of the overridden method
        """Silent: only the view layer prints."""


def resolve(root: Path, target: str) -> Path | None:
    """The requested file, if it is a regular file whose real path is below the root."""
    path = unquote(urlsplit(target).path)
    if "\0" in path:
        return None
    file = (root / path.lstrip("/")).resolve()
    return file if file.is_relative_to(root) and file.is_file() else None
