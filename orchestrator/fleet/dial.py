"""From a phone in the inventory to an authenticated connection, and how each way to fail is told.

    tcp      the cable, the switch, the address
    banner   is there an sshd that talks
    kex      key exchange
    hostkey  is it the phone we know
    auth     does it know us

A port is never merely probed: sshd counts connections that do not log in against this computer
(PerSourcePenalties, OpenSSH 9.8), so every connection goes all the way and retries are few.
"""

from __future__ import annotations

import errno
import random
import socket
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import fabric
from paramiko import (
    AuthenticationException,
    BadHostKeyException,
    MissingHostKeyPolicy,
    PKey,
    RejectPolicy,
    SSHClient,
    SSHConfig,
    SSHException,
)
from paramiko.pkey import UnknownKeyType

from orchestrator.fleet.errors import Unreachable
from orchestrator.fleet.hostkeys import HostKey, HostKeys, changed, cloned, host_name, unknown, unreadable
from orchestrator.fleet.network import Line
from orchestrator.fleet.quote import printable
from orchestrator.fleet.result import Phase
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.fleet.transport import PhoneTransport
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)


class Dialer:
    """What all phones share is loaded once: the login key and the pinned host keys."""

    def __init__(
        self, network: Line, key: PKey, key_path: Path, hosts: HostKeys, timeouts: Timeouts, *, trust_new: bool
    ) -> None:
        self._network = network
        self._key = key
        self._key_path = key_path
        self._hosts = hosts
        self._timeouts = timeouts
        self._trust_new = trust_new

    def dial(self, phone: Phone) -> fabric.Connection:
        self._refuse_early(phone)
        attempt = 0
        while True:
            try:
                return self._dial_once(phone)
            except Unreachable as error:
                if attempt >= error.retries:
                    raise
            time.sleep(random.uniform(0.2, 0.6) * 2**attempt)  # noqa: S311  (jitter, not a secret)
            attempt += 1

    def _refuse_early(self, phone: Phone) -> None:
        """What the host keys already forbid is not worth a connection that would not log in."""
        if others := self._hosts.twins(phone):
            raise cloned(others)
        if self._hosts.pinned(phone) is None and not self._trust_new:
            raise unknown(phone)

    def _dial_once(self, phone: Phone) -> fabric.Connection:
        sock = self._call(phone)
        try:
            _await_banner(sock, self._timeouts.banner)
            return self._open(phone, sock)
        except BaseException:
            sock.close()
            raise

    def _call(self, phone: Phone) -> socket.socket:
        try:
            sock = self._network.connect(str(phone.address), phone.ssh_port, self._timeouts.tcp)
        except OSError as error:
            raise _no_call(phone, error, self._timeouts.tcp) from error
        _watch_link(sock, self._timeouts.silence)
        return sock

    def _open(self, phone: Phone, sock: socket.socket) -> fabric.Connection:
        # A configuration each: Fabric writes into it. An empty SSHConfig: ~/.ssh/config is not about phones.
        config = fabric.Config(lazy=True, ssh_config=SSHConfig())
        connection = fabric.Connection(
            str(phone.address), phone.user, phone.ssh_port, config=config, connect_kwargs=self._options(sock)
        )
        self._check_host_key(connection.client, phone)
        try:
            connection.open()
        except BaseException as error:
            told = self._no_session(phone, connection.client.get_transport(), error)
            connection.client.close()
            if told is error:
                raise
            raise told from error
        return connection

    def _options(self, sock: socket.socket) -> dict[str, Any]:
        return {
            "sock": sock,
            "pkey": self._key,
            "allow_agent": False,
            "look_for_keys": False,
            "transport_factory": PhoneTransport,
            "timeout": self._timeouts.kex,
            "banner_timeout": self._timeouts.banner,
            "auth_timeout": self._timeouts.auth,
            "channel_timeout": self._timeouts.channel,
        }

    def _check_host_key(self, client: SSHClient, phone: Phone) -> None:
        """Gives paramiko the one key it needs to know, instead of a file to read again for each phone."""
        if pinned := self._hosts.pinned(phone):
            client.get_host_keys().add(host_name(phone), pinned.kind, _public_key(phone, pinned))
            client.set_missing_host_key_policy(RejectPolicy())
        else:
            client.set_missing_host_key_policy(_FirstMeeting(phone, self._hosts))

    def _no_session(self, phone: Phone, transport: PhoneTransport | None, error: BaseException) -> BaseException:
        """The error as told to a person; what is none of paramiko's own stays as it is."""
        if isinstance(error, BadHostKeyException):
            return changed(phone, _host_key(error.expected_key), _host_key(error.key))
        if not isinstance(error, (SSHException, EOFError, OSError)):
            return error
        if transport and transport.initial_kex_done:
            if _cut_off(error):
                message = "the connection was lost in the middle of the login"
                return Unreachable(
                    message,
                    code=ErrorCode.CONNECTION_LOST,
                    phase=Phase.AUTH,
                    remedy="open Termux on the phone",
                    retries=1,
                )
            remedy = f"add {self._key_path}.pub to ~/.ssh/authorized_keys on {phone.name}"
            code, why = self._why_not_in(error)
            return Unreachable(f"did not let us in: {why}", code=code, phase=Phase.AUTH, remedy=remedy)
        in_time = not (transport and transport.is_active())
        why = _reason(error) if in_time else f"not done in {self._timeouts.kex:g} s"
        remedy = f"ssh -v -p {phone.ssh_port} {phone.address}"
        code = ErrorCode.KEY_EXCHANGE_FAILED if in_time else ErrorCode.TIMED_OUT
        return Unreachable(f"key exchange failed: {why}", code=code, phase=Phase.KEX, remedy=remedy)

    def _why_not_in(self, error: Exception) -> tuple[ErrorCode, str]:
        if not isinstance(error, AuthenticationException):
            return ErrorCode.AUTH_FAILED, _reason(error)
        if _auth_timed_out(error):
            return ErrorCode.TIMED_OUT, f"no answer to our key in {self._timeouts.auth:g} s"
        return ErrorCode.AUTH_FAILED, "it does not accept our key"


class _FirstMeeting(MissingHostKeyPolicy):
    def __init__(self, phone: Phone, hosts: HostKeys) -> None:
        self._phone = phone
        self._hosts = hosts

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        self._hosts.accept(self._phone, _host_key(key))


def _host_key(key: PKey) -> HostKey:
    return HostKey(key.get_name(), key.get_base64())


def _public_key(phone: Phone, pinned: HostKey) -> PKey:
    try:
        return PKey.from_type_string(pinned.kind, b64decode(pinned.blob))
    except (SSHException, UnknownKeyType, ValueError) as error:
        raise unreadable(phone) from error


def _watch_link(sock: socket.socket, silence: float) -> None:
    """Lets the kernel notice a pulled cable, so that commands may be silent for as long as they need."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(silence / 2)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(silence / 8)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))


def _await_banner(sock: socket.socket, timeout: float) -> None:
    """Looks at the first bytes without taking them, so that paramiko starts only on what is an SSH server."""
    sock.settimeout(timeout)
    try:
        start = sock.recv(255, socket.MSG_PEEK)
    except TimeoutError:
        raise Unreachable(
            f"no banner in {timeout:g} s: the port is open, but sshd does not speak",
            phase=Phase.BANNER,
            remedy="wake the phone, open Termux, run termux-wake-lock and sshd",
            code=ErrorCode.NO_BANNER,
        ) from None
    except OSError as error:
        raise _hung_up(str(error.strerror)) from error
    if not start:
        raise _hung_up("no reason given")
    if not b"SSH-".startswith(start[:4]):
        raise _not_ssh(start)


def _not_ssh(start: bytes) -> Unreachable:
    """sshd says in plain text why it hangs up; anything else is no sshd."""
    said = start.decode("ascii", "replace").strip()
    if said.startswith("Exceeded MaxStartups"):
        return _hung_up("too many are being set up at once: MaxStartups")
    if said.startswith("Not allowed at this time"):
        return Unreachable(
            "sshd is refusing this computer for a while, after too many connections that did not log in",
            phase=Phase.BANNER,
            remedy="wait ten minutes, or restart sshd on the phone",
            code=ErrorCode.SSH_PENALTY,
        )
    return Unreachable(
        f"not an SSH server: it says {said[:60]!r}",
        phase=Phase.BANNER,
        remedy="check ssh.port in the inventory",
        code=ErrorCode.NOT_SSH,
    )


def _hung_up(reason: str) -> Unreachable:
    return Unreachable(
        f"the connection was closed before the banner ({reason})",
        phase=Phase.BANNER,
        remedy="restart sshd on the phone: pkill sshd; sshd",
        retries=2,
        code=ErrorCode.CONNECTION_CLOSED,
    )


def _no_call(phone: Phone, error: OSError, timeout: float) -> Unreachable:
    cable = f"check power and cable at {phone.where}, and the phone's address"
    if isinstance(error, TimeoutError):
        message = f"no answer in {timeout:g} s"
        return Unreachable(message, phase=Phase.TCP, remedy=cable, retries=1, code=ErrorCode.NO_ANSWER)
    if error.errno in _NO_ROUTE:
        return Unreachable("no phone answers at its address", phase=Phase.TCP, remedy=cable, code=ErrorCode.NO_ROUTE)
    if isinstance(error, ConnectionError):
        sshd = "on the phone, in Termux: termux-wake-lock; sshd"
        message = f"nothing listens on port {phone.ssh_port}"
        return Unreachable(message, phase=Phase.TCP, remedy=sshd, retries=2, code=ErrorCode.CONNECTION_REFUSED)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        message, code = "out of file descriptors on this computer", ErrorCode.TOO_MANY_OPEN_FILES
        return Unreachable(message, code=code, phase=Phase.TCP, remedy="ulimit -n 4096")
    return Unreachable(str(error), code=ErrorCode.CONNECT_FAILED, phase=Phase.TCP, remedy=cable)


def _cut_off(error: BaseException) -> bool:
    """Not refused: the other side hung up. paramiko has no class of its own for that."""
    return isinstance(error, EOFError | ConnectionError) or "EOF" in str(error)


def _auth_timed_out(error: AuthenticationException) -> bool:
    """paramiko has no class of its own for this either."""
    return "timeout" in str(error).lower()


def _reason(error: Exception) -> str:
    return printable(str(error)) or type(error).__name__
