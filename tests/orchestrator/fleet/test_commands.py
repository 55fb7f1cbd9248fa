"""What a command gets and gives, through a real sshd and a real bash."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, PhoneConnection, Unreachable
from orchestrator.fleet.shell import command_line
from tests.orchestrator.fleet.servers import Server

ARGUMENT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
NASTY = st.sampled_from(["", "-n", "--", "$(id)", "`id`", "a'b\"c", "\\", "*", "~", "a\nb", "\r", "\x1b[31m", "A=1"])


def test_output_exit_code_and_error_output_come_back(phone: PhoneConnection) -> None:
    result = phone.run(["bash", "-c", "echo out; echo err >&2; exit 7"])
    assert (result.rc, result.stdout, result.stderr) == (7, "out\n", "err\n")
    assert not result.ok


@given(argv=st.lists(ARGUMENT | NASTY, max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arguments_arrive_as_they_were_given(phone: PhoneConnection, argv: list[str]) -> None:
    result = phone.run(["printf", "%s\\0", *argv], check=True)
    assert result.stdout.split("\0")[:-1] == (argv or [""])


@given(value=ARGUMENT | NASTY)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_variables_arrive_as_they_were_given(phone: PhoneConnection, value: str) -> None:
    result = phone.run(["bash", "-c", 'printf %s "$NASTY"'], env={"NASTY": value, "OTHER": "x"})
    assert result.stdout == value


def test_bytes_that_are_not_text_survive_as_arguments(phone: PhoneConnection) -> None:
    argument = b"\xff\xfe'".decode("utf-8", "surrogateescape")
    result = phone.run(["bash", "-c", 'printf %s "$1" | od -An -tx1', "bash", argument])
    assert result.stdout.split() == ["ff", "fe", "27"]


@pytest.mark.parametrize("word", ["if", "A=1", "$(touch broken)", "no such"])
def test_the_program_is_a_name_and_nothing_else(phone: PhoneConnection, server: Server, word: str) -> None:
    assert phone.run([word]).rc == 127
    assert not (server.home / "broken").exists()


@pytest.mark.parametrize(("argv", "env"), [([], {}), (["a\0b"], {}), (["a"], {"A B": "1"}), (["a"], {"X;id": "1"})])
def test_what_cannot_be_said_in_a_shell_is_refused(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"empty|NUL|variable"):
        command_line(argv, env)


def test_commands_start_at_home(phone: PhoneConnection, server: Server) -> None:
    assert phone.run(["pwd"]).stdout.strip() == str(server.home)


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
def test_input_reaches_the_command_and_ends(phone: PhoneConnection, size: int) -> None:
    assert phone.run(["wc", "-c"], stdin=b"x" * size).stdout.strip() == str(size)


def test_long_input_and_long_output_do_not_wait_for_each_other(phone: PhoneConnection) -> None:
    data = b"0123456789abcde\n" * 500_000  # 8 MB: several times the flow-control window, in both directions
    assert phone.run(["cat"], stdin=data).stdout == data.decode()


def test_input_may_be_left_unread(phone: PhoneConnection) -> None:
    assert phone.run(["true"], stdin=b"x" * 5_000_000).ok


def test_output_that_is_not_text_is_replaced(phone: PhoneConnection) -> None:
    assert phone.run(["printf", r"a\377b"]).stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_a_slow_command_is_given_up(phone: PhoneConnection) -> None:
    with pytest.raises(PhoneError, match=r"sleep 30: not done after 0.3 s") as error:
        phone.run(["sleep", "30"], timeout=0.3)
    assert error.value.phase == "exec"
    assert phone.run(["true"]).ok, "the connection is still good"


@pytest.mark.parametrize("where", ["/dev/stdout", "/dev/stderr"])
def test_endless_output_is_cut(phone: PhoneConnection, where: str) -> None:
    with pytest.raises(PhoneError, match="more than 16777216 bytes"):
        phone.run(["bash", "-c", 'exec yes >"$1"', "bash", where])


def test_check_tells_how_it_failed(phone: PhoneConnection) -> None:
    with pytest.raises(PhoneError, match=r"exit code 3: last words") as error:
        phone.run(["bash", "-c", "echo last words >&2; exit 3"], check=True)
    assert error.value.phase == "exec"


def test_an_error_message_cannot_drive_the_terminal(phone: PhoneConnection) -> None:
    with pytest.raises(PhoneError, match="exit code 1") as error:
        phone.run(["bash", "-c", r"printf '\033]0;owned\007\033[2J first\nsecond' >&2; exit 1"], check=True)
    assert error.value.message.splitlines()[-1] == "second"
    assert error.value.message.replace("\n", "").isprintable()


def test_a_killed_command_has_no_exit_code(phone: PhoneConnection) -> None:
    with pytest.raises(PhoneError, match="killed or not started"):
        phone.run(["bash", "-c", "kill -9 $$"], check=True)


def test_a_script_gets_its_arguments_and_no_input(phone: PhoneConnection) -> None:
    result = phone.script('cat\nfor each in "$@"; do printf "<%s>" "$each"; done\nexit 4', "a b", "$HOME", "-x")
    assert (result.rc, result.stdout) == (4, "<a b><$HOME><-x>")


def test_half_a_script_does_not_run(phone: PhoneConnection, server: Server) -> None:
    assert not phone.script("touch ran-anyway\nif true; then").ok
    assert not (server.home / "ran-anyway").exists()


def test_a_lost_connection_is_unreachable_and_made_again(fleet: Fleet, server: Server) -> None:
    with pytest.raises(Unreachable, match="connection lost") as error:
        fleet.connection(server.phone).run(["bash", "-c", "kill -9 $PPID; sleep 5"])
    assert error.value.phase == "exec"
    assert fleet.connection(server.phone).run(["true"]).ok
