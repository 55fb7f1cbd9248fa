from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.lab import ipc


def test_messages_keep_their_boundaries_and_carry_files(tmp_path: Path) -> None:
    here, there = ipc.pair()
    (tmp_path / "file").write_text("hello")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    with here, there:
        ipc.send(here, {"n": 1}, [fd])
        ipc.send(here, {"n": 2})
        message, files = ipc.receive(there)
        assert message == {"n": 1}
        assert os.read(files[0], 10) == b"hello"
        assert not os.get_inheritable(files[0])
        assert ipc.receive(there) == ({"n": 2}, [])
    for file in (fd, *files):
        os.close(file)


def test_a_closed_connection_raises_eof_error() -> None:
    here, there = ipc.pair()
    with there:
        here.close()
        with pytest.raises(EOFError):
            ipc.receive(there)


def test_a_message_that_is_not_an_object_is_rejected() -> None:
    here, there = ipc.pair()
    with here, there:
        here.send(b"[1, 2]")
        with pytest.raises(TypeError):
            ipc.receive(there)


def test_sockets_work_in_a_directory_with_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 20) / ("longer" * 20)
    deep.mkdir(parents=True)
    assert len(str(deep / ipc.SOCKET_NAME)) > 108
    with ipc.serve(deep) as server, ipc.connect(deep) as client:
        assert (deep / ipc.SOCKET_NAME).stat().st_mode & 0o777 == 0o600
        accepted, _ = server.accept()
        with accepted:
            ipc.send(client, {"deep": True})
            assert ipc.receive(accepted)[0] == {"deep": True}
