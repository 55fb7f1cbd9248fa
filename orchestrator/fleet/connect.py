"""Connect to a phone: TCP, SSH handshake, host key, login; each failure becomes an error with a remedy.

    tcp      cable, switch, address
    banner   does an sshd answer
    kex      key exchange
    hostkey  is it the expected phone
    auth     does it accept our key

sshd penalizes connections that do not log in (PerSourcePenalties, OpenSSH 9.8), so every connection attempts a login
and retries are few.
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
from orchestrator.fleet.host_keys import HostKey, HostKeys, changed, cloned, host_name, unknown, unreadable
from orchestrator.fleet.network import Dialer
from orchestrator.fleet.result import Phase
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.fleet.transport import PhoneTransport
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import lines

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)


class Connector:
    """Opens connections; the login key and the pinned host keys are loaded once for all phones."""

    def __init__(
        self, network: Dialer, key: PKey, key_path: Path, hosts: HostKeys, timeouts: Timeouts, *, trust_new: bool
    ) -> None:
        self._network = network
        self._key = key
        self._key_path = key_path
        self._hosts = hosts
        self._timeouts = timeouts
        self._trust_new = trust_new

    def connect(self, phone: Phone) -> fabric.Connection:
        self._refuse_early(phone)
        attempt = 0
        while True:
            try:
                return self._connect_once(phone)
            except Unreachable as error:
                if attempt >= error.retries:
                    raise
            time.sleep(random.uniform(0.2, 0.6) * 2**attempt)  # noqa: S311  (jitter, not a secret)
            attempt += 1

    def _refuse_early(self, phone: Phone) -> None:
        """Reject what the pinned keys rule out without opening a connection."""
        if others := self._hosts.duplicates(phone):
            raise cloned(others)
        if self._hosts.pinned(phone) is None and not self._trust_new:
            raise unknown(phone)

    def _connect_once(self, phone: Phone) -> fabric.Connection:
        sock = self._connect_tcp(phone)
        try:
            _await_banner(sock, self._timeouts.banner)
            return self._open(phone, sock)
        except BaseException:
            sock.close()
            raise

    def _connect_tcp(self, phone: Phone) -> socket.socket:
        try:
            sock = self._network.connect(str(phone.address), phone.ssh_port, self._timeouts.tcp)
        except OSError as error:
            raise _tcp_error(phone, error, self._timeouts.tcp) from error
        _enable_keepalive(sock, self._timeouts.silence)
        return sock

    def _open(self, phone: Phone, sock: socket.socket) -> fabric.Connection:
        # One configuration per connection: Fabric modifies it. An empty SSHConfig ignores ~/.ssh/config.
        config = fabric.Config(lazy=True, ssh_config=SSHConfig())
        connection = fabric.Connection(
            str(phone.address), phone.user, phone.ssh_port, config=config, connect_kwargs=self._options(sock)
        )
        self._check_host_key(connection.client, phone)
        try:
            connection.open()
        except BaseException as error:
            translated = self._session_error(phone, connection.client.get_transport(), error)
            connection.client.close()
            if translated is error:
                raise
            raise translated from error
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
        """Give paramiko the expected key directly, so that it need not read known_hosts for each phone."""
        if pinned := self._hosts.pinned(phone):
            client.get_host_keys().add(host_name(phone), pinned.kind, _public_key(phone, pinned))
            client.set_missing_host_key_policy(RejectPolicy())
        else:
            client.set_missing_host_key_policy(_TrustOnFirstUse(phone, self._hosts))

    def _session_error(self, phone: Phone, transport: PhoneTransport | None, error: BaseException) -> BaseException:
        """Translate an error from paramiko; other exceptions are returned unchanged."""
        if isinstance(error, BadHostKeyException):
            return changed(phone, _host_key(error.expected_key), _host_key(error.key))
        if not isinstance(error, (SSHException, EOFError, OSError)):
            return error
        if transport and transport.initial_kex_done:
            if _was_disconnected(error):
                message = "connection lost during login"
                return Unreachable(
                    message,
                    code=ErrorCode.CONNECTION_LOST,
                    phase=Phase.AUTH,
                    remedy="open Termux on the phone",
                    retries=1,
                )
            remedy = f"add {self._key_path}.pub to ~/.ssh/authorized_keys on {phone.name}"
            code, why = self._auth_failure(error)
            return Unreachable(f"login failed: {why}", code=code, phase=Phase.AUTH, remedy=remedy)
        in_time = not (transport and transport.is_active())
        why = _reason(error) if in_time else f"timed out after {self._timeouts.kex:g} s"
        remedy = f"ssh -v -p {phone.ssh_port} {phone.address}"
        code = ErrorCode.KEY_EXCHANGE_FAILED if in_time else ErrorCode.TIMED_OUT
        return Unreachable(f"key exchange failed: {why}", code=code, phase=Phase.KEX, remedy=remedy)

    def _auth_failure(self, error: Exception) -> tuple[ErrorCode, str]:
        if not isinstance(error, AuthenticationException):
            return ErrorCode.AUTH_FAILED, _reason(error)
        if _auth_timed_out(error):
            return ErrorCode.TIMED_OUT, f"no reply within {self._timeouts.auth:g} s"
        return ErrorCode.AUTH_FAILED, "the phone does not accept our key"


class _TrustOnFirstUse(MissingHostKeyPolicy):
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


def _enable_keepalive(sock: socket.socket, silence: float) -> None:
    """TCP keepalive: the kernel detects a pulled cable, so commands may be silent for as long as they need."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(silence / 2)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(silence / 8)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))


def _await_banner(sock: socket.socket, timeout: float) -> None:
    """Peek at the first bytes: start paramiko only if this is an SSH server."""
    sock.settimeout(timeout)
    try:
        start = sock.recv(255, socket.MSG_PEEK)
    except TimeoutError:
        raise Unreachable(
            f"no SSH banner within {timeout:g} s: the port is open, but sshd does not answer",
            phase=Phase.BANNER,
            remedy="wake the phone, open Termux, run termux-wake-lock and sshd",
            code=ErrorCode.NO_BANNER,
        ) from None
    except OSError as error:
        raise _closed_early(str(error.strerror)) from error
    if not start:
        raise _closed_early("no reason given")
    if not b"SSH-".startswith(start[:4]):
        raise _not_ssh(start)


def _not_ssh(start: bytes) -> Unreachable:
    """sshd explains in plain text why it disconnects; any other text is not from sshd."""
    text = start.decode("ascii", "replace").strip()
    if text.startswith("Exceeded MaxStartups"):
        return _closed_early("too many unauthenticated connections: MaxStartups")
    if text.startswith("Not allowed at this time"):
        return Unreachable(
            "sshd temporarily refuses this computer after too many failed logins",
            phase=Phase.BANNER,
            remedy="wait ten minutes, or restart sshd on the phone",
            code=ErrorCode.SSH_PENALTY,
        )
    return Unreachable(
        f"not an SSH server: it sent {text[:60]!r}",
        phase=Phase.BANNER,
        remedy="check ssh.port in the inventory",
        code=ErrorCode.NOT_SSH,
    )


def _closed_early(reason: str) -> Unreachable:
    return Unreachable(
        f"connection closed before the SSH banner ({reason})",
        phase=Phase.BANNER,
        remedy="restart sshd on the phone: pkill sshd; sshd",
        retries=2,
        code=ErrorCode.CONNECTION_CLOSED,
    )


def _tcp_error(phone: Phone, error: OSError, timeout: float) -> Unreachable:
    cable = f"check power and cable at {phone.where}, and the phone's address"
    if isinstance(error, TimeoutError):
        message = f"no answer within {timeout:g} s"
        return Unreachable(message, phase=Phase.TCP, remedy=cable, retries=1, code=ErrorCode.NO_ANSWER)
    if error.errno in _NO_ROUTE:
        return Unreachable("no route to the phone", phase=Phase.TCP, remedy=cable, code=ErrorCode.NO_ROUTE)
    if isinstance(error, ConnectionError):
        sshd = "on the phone, in Termux: termux-wake-lock; sshd"
        message = f"connection refused on port {phone.ssh_port}"
        return Unreachable(message, phase=Phase.TCP, remedy=sshd, retries=2, code=ErrorCode.CONNECTION_REFUSED)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        message, code = "out of file descriptors on this computer", ErrorCode.TOO_MANY_OPEN_FILES
        return Unreachable(message, code=code, phase=Phase.TCP, remedy="ulimit -n 4096")
    return Unreachable(str(error), code=ErrorCode.CONNECT_FAILED, phase=Phase.TCP, remedy=cable)


def _was_disconnected(error: BaseException) -> bool:
    """The peer disconnected. paramiko has no exception class for this."""
    return isinstance(error, EOFError | ConnectionError) or "EOF" in str(error)


def _auth_timed_out(error: AuthenticationException) -> bool:
    """paramiko has no exception class for this either."""
    return "timeout" in str(error).lower()


def _reason(error: Exception) -> str:
    return lines(str(error)) or type(error).__name__
