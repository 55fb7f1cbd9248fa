"""Error codes: stable names for what can go wrong, on a phone or on the way to it.

Code branches on these and never on the wording of a message. They travel as text in JSON, in events and in run
records, so a code is never renamed; new ones may be added at any time, and the other side reads those as UNKNOWN.
"""

from __future__ import annotations

import errno
import json
from enum import StrEnum


class ErrorCode(StrEnum):
    """What went wrong. A message beside it explains the case at hand to a person."""

    UNKNOWN = "unknown"  # a newer agent's code, or none at all
    INTERNAL_ERROR = "internal_error"  # a bug: an exception that nothing expected, or a broken invariant

    # Requests that no phone could fulfill
    BAD_REQUEST = "bad_request"
    BAD_MODEL = "bad_model"
    UNKNOWN_MODEL = "unknown_model"

    # Runs
    NO_SUCH_RUN = "no_such_run"
    NOT_STARTED = "not_started"
    ALREADY_STARTED = "already_started"
    START_FAILED = "start_failed"
    BADLY_STAGED = "badly_staged"  # files of the run are missing, damaged or of another run
    LEASE_HELD = "lease_held"  # another computer supervises the run
    RANK_MISMATCH = "rank_mismatch"  # the ranks that mpirun started are not those of run.json
    STATE_LOST = "state_lost"  # no phone holds the state that the attempt resumes from
    STATE_MISMATCH = "state_mismatch"  # a rank starts from other weights than the rest
    DIVERGED = "diverged"
    MPI_FAILED = "mpi_failed"  # often because another rank died
    CHECKPOINT_SERVER_FAILED = "checkpoint_server_failed"

    # Resources of a phone
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    IO_ERROR = "io_error"

    # Files
    BAD_CHECKPOINT = "bad_checkpoint"
    BAD_WEIGHTS = "bad_weights"
    BAD_TENSOR_FILE = "bad_tensor_file"
    DATA_DAMAGED = "data_damaged"
    DATA_MISSING = "data_missing"
    DATA_BUSY = "data_busy"  # another process uses or writes the dataset
    TRANSFER_INTERRUPTED = "transfer_interrupted"

    # Programs of a phone
    AGENT_DAMAGED = "agent_damaged"
    CORE_UNUSABLE = "core_unusable"
    CORE_BUILD_FAILED = "core_build_failed"
    BROKEN_ENVIRONMENT = "broken_environment"  # a program, library, variable or address is missing or wrong
    NO_OPENCL_DEVICE = "no_opencl_device"
    OPENCL_FAILED = "opencl_failed"
    MEASUREMENT_FAILED = "measurement_failed"
    SINGULAR_MATRIX = "singular_matrix"

    # Processes, on a phone or started there by the host
    KILLED = "killed"
    COMMAND_FAILED = "command_failed"
    TIMED_OUT = "timed_out"
    TOO_MUCH_OUTPUT = "too_much_output"
    BAD_ANSWER = "bad_answer"  # the output is not what the protocol asks for

    # Connections
    CONNECTION_REFUSED = "connection_refused"  # the phone is up, and no sshd listens
    NO_ANSWER = "no_answer"
    NO_ROUTE = "no_route"
    NO_BANNER = "no_banner"  # connected, but the server sends nothing
    CONNECTION_CLOSED = "connection_closed"  # by the phone, before or during the login
    CONNECTION_LOST = "connection_lost"
    SSH_PENALTY = "ssh_penalty"  # sshd rejects this computer for a while
    NOT_SSH = "not_ssh"
    KEY_EXCHANGE_FAILED = "key_exchange_failed"
    AUTH_FAILED = "auth_failed"
    HOST_KEY_UNKNOWN = "host_key_unknown"
    HOST_KEY_CHANGED = "host_key_changed"
    HOST_KEY_DUPLICATE = "host_key_duplicate"  # two phones show the same one
    HOST_KEY_UNREADABLE = "host_key_unreadable"
    TOO_MANY_OPEN_FILES = "too_many_open_files"
    CONNECT_FAILED = "connect_failed"  # any other error of the operating system
    CANCELLED = "cancelled"

    # Setting a phone up
    UNSUPPORTED_PHONE = "unsupported_phone"
    NEEDS_A_PERSON = "needs_a_person"  # something must be tapped or typed on the phone itself
    ADB_FAILED = "adb_failed"
    USB_DISCONNECTED = "usb_disconnected"
    INDEX_MISMATCH = "index_mismatch"  # the package index that reached the phone is not the one that was sent
    PACKAGE_FAILED = "package_failed"  # a package or a wheel could not be built or installed


def parse_code(raw: object) -> ErrorCode:
    """The code in a document. One that this release does not know is UNKNOWN: the other side may be newer."""
    try:
        return ErrorCode(str(raw))
    except ValueError:
        return ErrorCode.UNKNOWN


class AgentError(Exception):
    """The work cannot go on. `code` is for programs, the message for a person; the host adds which phone it was."""

    code = ErrorCode.INTERNAL_ERROR

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code


class InternalError(AgentError):
    """A bug: a broken invariant."""

    code = ErrorCode.INTERNAL_ERROR


class BadRequestError(AgentError):
    """A request that no phone could fulfill."""

    code = ErrorCode.BAD_REQUEST


class BadlyStagedError(AgentError):
    """Files of a run are missing, damaged or of another run."""

    code = ErrorCode.BADLY_STAGED


def code_of(error: BaseException) -> ErrorCode:
    """The code of any exception that ends work on a phone."""
    if isinstance(error, AgentError):
        return error.code
    if isinstance(error, MemoryError):
        return ErrorCode.OUT_OF_MEMORY
    if isinstance(error, OSError):
        return code_of_errno(error.errno)
    if type(error).__module__ == "mpi4py.MPI":  # not imported here: phones without MPI raise errors as well
        return ErrorCode.MPI_FAILED
    return ErrorCode.INTERNAL_ERROR


def code_of_errno(number: int | None) -> ErrorCode:
    known = {
        errno.ENOSPC: ErrorCode.DISK_FULL,
        errno.EDQUOT: ErrorCode.DISK_FULL,
        errno.ENOMEM: ErrorCode.OUT_OF_MEMORY,
    }
    return known.get(number or 0, ErrorCode.IO_ERROR)


def describe(error: BaseException) -> str:
    """The message of an agent's own error; with its type, that of any other exception."""
    return str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"


def error_line(error: BaseException) -> str:
    """What an agent command that fails writes as the last line of its error output."""
    return json.dumps({"error": {"code": code_of(error).value, "message": describe(error)}})


def error_message(output: str) -> str:
    """The message of the error line in `output`; all of `output` where it has none."""
    found = read_error_line(output)
    return found[1] if found else output


def read_error_line(output: str) -> tuple[ErrorCode, str] | None:
    """The last error line in the error output of an agent command; None if it wrote none."""
    for line in reversed(output.splitlines()):
        try:
            error = json.loads(line)["error"]
            return parse_code(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return None
