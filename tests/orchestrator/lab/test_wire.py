from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.lab import cables


def test_messages_keep_their_bounds_and_carry_files(tmp_path: Path) -> None:
    here, there = cables.pair()
    (tmp_path / "file").write_text("hello")
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    with here, there:
        cables.send(here, {"n": 1}, [fd])
        cables.send(here, {"n": 2})
        message, files = cables.receive(there)
        assert message == {"n": 1}
        assert os.read(files[0], 10) == b"hello"
        assert not os.get_inheritable(files[0])
        assert cables.receive(there) == ({"n": 2}, [])
    for file in (fd, *files):
        os.close(file)


def test_the_end_is_an_error_not_a_message() -> None:
    here, there = cables.pair()
    with there:
        here.close()
        with pytest.raises(EOFError):
            cables.receive(there)


def test_what_is_no_object_is_refused() -> None:
    here, there = cables.pair()
    with here, there:
        here.send(b"[1, 2]")
        with pytest.raises(TypeError):
            cables.receive(there)


def test_a_socket_in_a_deep_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 20) / ("longer" * 20)
    deep.mkdir(parents=True)
    assert len(str(deep / cables.SOCKET_NAME)) > 108
    with cables.serve(deep) as server, cables.dial(deep) as client:
        assert (deep / cables.SOCKET_NAME).stat().st_mode & 0o777 == 0o600
        accepted, _ = server.accept()
        with accepted:
            cables.send(client, {"deep": True})
            assert cables.receive(accepted)[0] == {"deep": True}
