from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from orchestrator.inventory.model import Phone
from orchestrator.launch.reachability import any_reachable
from tests.orchestrator.launch.samples import phones


@contextmanager
def listening(banner: bytes) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(banner)

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]


def at(port: int) -> Phone:
    return replace(phones(1)[0], address=IPv4Address("127.0.0.1"), ssh_port=port)


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
    return port


def test_one_phone_that_answers_is_enough() -> None:
    with listening(b"SSH-2.0-OpenSSH_9.8\r\n") as port:
        assert any_reachable([at(unused_port()), at(port)])


@pytest.mark.parametrize("banner", [b"HTTP/1.1 400 Bad Request\r\n", b""])
def test_connection_without_ssh_banner_does_not_count(banner: bytes) -> None:
    with listening(banner) as port:
        assert not any_reachable([at(port)], timeout_s=0.5)


def test_refused_connections_are_unreachable() -> None:
    assert not any_reachable([at(unused_port())])
