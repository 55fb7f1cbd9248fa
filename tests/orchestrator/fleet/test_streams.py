from __future__ import annotations

import threading
from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection, Unreachable
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.fleet.servers import Server

LIMITS: Any = {"silence": 30.0, "timeout": 60.0}


def test_lines_arrive_while_the_command_runs(phone: PhoneConnection) -> None:
    command = ["bash", "-c", 'echo "$GREETING"; sleep 20; echo never']
    with phone.open_stream(command, env={"GREETING": "hi"}, **LIMITS) as stream:
        assert next(iter(stream)) == b"hi"


def test_all_lines_then_the_exit_code(phone: PhoneConnection) -> None:
    stream = phone.open_stream(["bash", "-c", "seq 200000; echo oops >&2; printf unfinished; exit 3"], **LIMITS)
    lines = list(stream)
    assert (len(lines), lines[-2:], stream.rc, stream.stderr) == (200001, [b"200000", b"unfinished"], 3, "oops\n")


def test_error_output_does_not_stop_the_stream(phone: PhoneConnection) -> None:
    stream = phone.open_stream(["bash", "-c", "yes | head -c 5000000 >&2; echo done"], **LIMITS)
    assert list(stream) == [b"done"]


def test_a_line_without_end_is_refused(phone: PhoneConnection) -> None:
    stream = phone.open_stream(["bash", "-c", "yes | tr -d '\\n'"], **LIMITS)
    with pytest.raises(PhoneError, match="line longer than"):
        list(stream)


def test_silence_is_noticed_when_asked_for(phone: PhoneConnection) -> None:
    stream = phone.open_stream(["bash", "-c", "echo one; sleep 20"], silence=2.0, timeout=60.0)
    lines = iter(stream)
    assert next(lines) == b"one"
    with pytest.raises(PhoneError, match="no output for 2 s"):
        next(lines)


def test_single_bytes_now_and_then_count_as_silence(phone: PhoneConnection) -> None:
    trickle = ["bash", "-c", "while :; do printf x; sleep 0.2; done"]
    stream = phone.open_stream(trickle, silence=1.0, timeout=60.0)
    with stream, pytest.raises(PhoneError, match="no output for 1 s") as raised:
        list(stream)
    assert raised.value.code is ErrorCode.TIMED_OUT


def test_a_stream_that_trickles_ends_at_its_deadline(phone: PhoneConnection) -> None:
    trickle = ["bash", "-c", "while :; do echo x; sleep 0.1; done"]
    stream = phone.open_stream(trickle, silence=30.0, timeout=1.5)
    with stream, pytest.raises(PhoneError, match=r"not done after 1\.5 s") as raised:
        list(stream)
    assert raised.value.code is ErrorCode.TIMED_OUT


def test_closing_from_another_thread_ends_the_iteration(phone: PhoneConnection) -> None:
    stream = phone.open_stream(["bash", "-c", "echo one; sleep 20"], **LIMITS)
    lines = iter(stream)
    assert next(lines) == b"one"
    threading.Timer(0.1, stream.close).start()
    assert list(lines) == []
    assert stream.rc is None


def test_a_lost_connection_is_not_an_end(phone: PhoneConnection, server: Server) -> None:
    command = "echo one; until [ -e cut ]; do sleep 0.05; done; rm cut; kill -9 $PPID; sleep 5"
    lines = iter(phone.open_stream(["bash", "-c", command], **LIMITS))
    assert next(lines) == b"one"
    (server.home / "cut").touch()
    with pytest.raises(Unreachable):
        next(lines)
