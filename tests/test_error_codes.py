"""Each error code is raised by the code it is for, and reaches the host as that code."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from orchestrator.bootstrap.adb import Adb
from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection, agent
from orchestrator.fleet.result import NO_EXIT_CODE, CommandResult, command_error
from orchestrator.fleet.stream import MAX_LINE, Stream
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.preflight import require_packages
from orchestrator.provision.steps.sshd import SshdStep
from phone_agent.contract.errors import ErrorCode, code_of, error_line, parse_code, read_error_line
from phone_agent.contract.replies import RunProbe
from tests.orchestrator.provision.samples import desired_state, facts
from tests.phone_agent.phones import Phone, run_spec

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [*ROOT.glob("orchestrator/**/*.py"), *ROOT.glob("phone_agent/**/*.py")]
CONTRACT = ROOT / "phone_agent/contract/errors.py"

# Provoked with real servers there.
CONNECTING = ROOT / "tests/orchestrator/fleet/test_connecting.py"
WITH_SERVERS = frozenset({
    ErrorCode.CONNECTION_REFUSED, ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE, ErrorCode.NO_BANNER,
    ErrorCode.CONNECTION_CLOSED, ErrorCode.CONNECTION_LOST, ErrorCode.SSH_PENALTY, ErrorCode.NOT_SSH,
    ErrorCode.KEY_EXCHANGE_FAILED, ErrorCode.AUTH_FAILED, ErrorCode.HOST_KEY_UNKNOWN, ErrorCode.HOST_KEY_CHANGED,
    ErrorCode.HOST_KEY_DUPLICATE, ErrorCode.HOST_KEY_UNREADABLE, ErrorCode.TOO_MANY_OPEN_FILES,
    ErrorCode.CONNECT_FAILED, ErrorCode.CANCELLED,
})  # fmt: skip

Provoke = Callable[[Path], object]


# ------------------------------------------------------------------------------------- what an agent command raises


def internal_error(_: Path) -> None:
    from phone_agent.comm.world import SingleProcessWorld

    SingleProcessWorld().neighbors((0,), 0)


def bad_request(_: Path) -> None:
    from phone_agent.job import run_directory

    run_directory.find("../elsewhere")


def bad_model(home: Path) -> None:
    from phone_agent import models

    (home / "empty.py").write_text("")
    models.build(f"{home}/empty.py:net")


def unknown_model(_: Path) -> None:
    from phone_agent import models

    models.build("resnet51")


def no_such_run(_: Path) -> None:
    from phone_agent.job import run_directory

    run_directory.find("run")


def not_started(home: Path) -> None:
    from phone_agent.job.follow import follow

    Phone(home).stage(run_spec((1,)))
    next(follow("run", 0))


def already_started(home: Path) -> None:
    from phone_agent.contract import layout
    from phone_agent.job.start import start

    (Phone(home).stage(run_spec((1,)), ["true"]) / layout.STATE_FILE).touch()
    start("run")


def start_failed(home: Path) -> None:
    from phone_agent.job.start import start

    Phone(home).stage(run_spec((1,)), ["no-such-mpirun"])
    start("run")


def badly_staged(home: Path) -> None:
    from phone_agent.job.start import start

    Phone(home).stage(run_spec((1,)))
    start("run")


def lease_held(home: Path) -> None:
    from phone_agent.job.stop import stop

    Phone(home).stage(run_spec((1,)))
    stop("run", holder="me@laptop")
    stop("run", holder="eve@elsewhere")


def rank_mismatch(_: Path) -> None:
    from phone_agent.comm.world import SingleProcessWorld
    from phone_agent.train.rank_checks import own_rank

    own_rank(run_spec((1, 1)), SingleProcessWorld())


def state_lost(home: Path) -> None:
    from phone_agent.comm.world import SingleProcessWorld
    from phone_agent.contract.committed_step import CommittedStep
    from phone_agent.memckpt import client
    from phone_agent.memckpt.checkpointer import MemoryCheckpointer
    from phone_agent.memckpt.server import serve

    buffers, threads = {"values": np.zeros(1, np.float32)}, ThreadPoolExecutor()
    with threads:
        threads.submit(serve, home)
        while not client.is_running(home):
            time.sleep(0.01)
        try:
            MemoryCheckpointer(home, 1, CommittedStep(5, 0), buffers, (), SingleProcessWorld(), pytest.fail)
        finally:
            client.stop_server(home)


def state_mismatch(_: Path) -> None:
    from phone_agent.train.rank_checks import check_same_start

    check_same_start(run_spec((1, 1)).ranks, [1.0, 2.0])


def diverged(_: Path) -> None:
    from phone_agent.train import evaluate

    evaluate.mean_metrics(np.array([np.nan, 0.0, 0.0, 1.0]))


def mpi_failed(_: Path) -> None:
    """As mpi4py raises it where a neighbor is gone."""
    raise type("Exception", (RuntimeError,), {"__module__": "mpi4py.MPI"})("MPI_ERR_OTHER: known error not in list")


def checkpoint_server_failed(home: Path) -> None:
    from phone_agent.memckpt import client

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "TIMEOUT_S", 0.1)
        patched.setattr(sys, "executable", "/bin/false")  # it ends at once
        client.ensure_server(home)


def out_of_memory(_: Path) -> None:
    np.empty(1 << 60, np.uint8)


def disk_full(_: Path) -> None:
    with Path("/dev/full").open("w") as full:
        full.write("x")


def io_error(home: Path) -> None:
    from phone_agent.data import locks

    (home / "file").touch()
    with locks.exclusive(home / "file" / "dataset"):
        pass


def bad_checkpoint(home: Path) -> None:
    from phone_agent.contract import safetensors
    from phone_agent.train import checkpoint

    safetensors.write(home / "c.safetensors", {"w": np.ones(3, np.float32)}, {"format": checkpoint.FORMAT})
    checkpoint.read(home / "c.safetensors")


def bad_weights(_: Path) -> None:
    from phone_agent import models
    from phone_agent.nn.packing import State
    from phone_agent.nn.weights import from_state_dict

    graph = models.build("lenet")
    from_state_dict(graph, State(graph, 1), {"other.weight": np.ones(3, np.float32)})


def bad_tensor_file(home: Path) -> None:
    from phone_agent.contract import safetensors

    (home / "w.safetensors").write_bytes(b"garbage")
    safetensors.read(home / "w.safetensors")


def data_damaged(_: Path) -> None:
    from phone_agent.contract.dataset_manifest import parse_manifest

    parse_manifest({})


def data_missing(home: Path) -> None:
    from phone_agent.contract.shards import open_shard

    open_shard(home / "train-00000.shard")


def data_busy(home: Path) -> None:
    from phone_agent.data import locks

    with locks.exclusive(home / "dataset"):
        locks.shared(home / "dataset")


def transfer_interrupted(_: Path) -> None:
    from phone_agent.contract.dataset_delivery import read_delivery

    read_delivery(io.BytesIO(b'{"cut'))


def agent_damaged(home: Path) -> None:
    from phone_agent.contract import manifest

    manifest.read(home)


def core_unusable(home: Path) -> None:
    from phone_agent.core.library import load

    (home / "core.so").write_bytes(b"garbage")
    load(home / "core.so")


def core_build_failed(_: Path) -> None:
    from phone_agent.core import build

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "uname", lambda: SimpleNamespace(machine="mips"))
        build.host_target()


def broken_environment(_: Path) -> None:
    from phone_agent.selftest import worker

    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("TMPDIR", raising=False)
        worker.check_tmpdir()


def no_opencl_device(_: Path) -> None:
    from phone_agent.backends.opencl import device

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pyopencl", None)
        patched.setattr(device, "load_pyopencl", device.load_pyopencl.__wrapped__)  # cached by other tests
        device.find_device.__wrapped__()


def opencl_failed(_: Path) -> None:
    from phone_agent.backends.opencl.emit import LaunchBuilder

    maker = LaunchBuilder.__new__(LaunchBuilder)
    maker.kernels = cast("Any", SimpleNamespace(max_work_group=lambda _kernel: 64))
    maker.launch(SimpleNamespace(function_name="gemm"), (), (128,), (128,))


def measurement_failed(_: Path) -> None:
    from phone_agent.contract.tune import TuneRequest
    from phone_agent.tune import search

    list(search.search(TuneRequest("lenet", 1, 1.0), measure=lambda *_: ()))


def singular_matrix(_: Path) -> None:
    from phone_agent.linpack import bench
    from phone_agent.linpack.matrix import System
    from tests.phone_agent.linpack.test_linpack import SINGLE_PROCESS

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(System, "local_matrix", lambda self, *_: np.zeros((self.n, self.n + 1)))
        bench.run(bench.LinpackSize(20, 8, threads=1), SINGLE_PROCESS)


def killed(_: Path) -> None:
    from phone_agent.device.isolated import run_isolated

    run_isolated(lambda: os.kill(os.getpid(), signal.SIGKILL), 30)


def timed_out(_: Path) -> None:
    from phone_agent.device.isolated import run_isolated

    run_isolated(lambda: time.sleep(1000), 0.2)


def bad_answer(_: Path) -> None:
    from phone_agent.device.isolated import run_isolated

    run_isolated(lambda: os._exit(3), 30)


def command_failed(_: Path) -> None:
    from phone_agent.selftest import worker

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "executable", "/bin/false")
        worker.check_mpi4py()


ON_PHONES: dict[ErrorCode, Provoke] = {
    ErrorCode(provoke.__name__): provoke
    for provoke in (
        internal_error, bad_request, bad_model, unknown_model, no_such_run, not_started, already_started, start_failed,
        badly_staged, lease_held, rank_mismatch, state_lost, state_mismatch, diverged, mpi_failed,
        checkpoint_server_failed, out_of_memory, disk_full, io_error, bad_checkpoint, bad_weights, bad_tensor_file,
        data_damaged, data_missing, data_busy, transfer_interrupted, agent_damaged, core_unusable, core_build_failed,
        broken_environment, no_opencl_device, opencl_failed, measurement_failed, singular_matrix, killed, timed_out,
        bad_answer, command_failed,
    )
}  # fmt: skip


@pytest.mark.parametrize("code", ON_PHONES, ids=str)
def test_a_phone_raises_it_and_the_host_gets_it(
    code: ErrorCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if code is not ErrorCode.SINGULAR_MATRIX:  # it needs the compute core, which is cached under the real one
        monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of any class; its code counts
        ON_PHONES[code](tmp_path)
    assert code_of(raised.value) is code
    with pytest.raises(PhoneError) as heard:
        agent.call(answering(1, "", f"noise\n{error_line(raised.value)}\n"), RunProbe, "probe", "run")
    assert heard.value.code is code


def answering(rc: int, stdout: str, stderr: str) -> PhoneConnection:
    """A phone on which every command ends like this."""

    def run(argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(tuple(argv), rc, stdout, stderr, 0.1)

    return cast("PhoneConnection", SimpleNamespace(run=run, phone=SimpleNamespace(name="p1-01")))


# ------------------------------------------------------------------------------------------- what the host raises


def too_much_output(_: Path) -> None:
    pieces = iter([(b"x" * (MAX_LINE + 1), b"")])
    list(Stream(cast("Any", SimpleNamespace(read=lambda _: next(pieces), close=lambda: None)), 1.0, 1.0))


def unsupported_phone(_: Path) -> None:
    require_packages(facts(arch="i686"), desired_state())


def needs_a_person(_: Path) -> None:
    SshdStep().apply(cast("Any", None), facts(sshd_pid=None), desired_state())


def adb_failed(home: Path) -> None:
    Adb(str(home / "no-such-adb")).run("devices")


def usb_disconnected(_: Path) -> None:
    Adb("/bin/false").device("R58M").run("shell", "true")


def package_failed(_: Path) -> None:
    _raise_explained("E: Something new\n")


def index_mismatch(_: Path) -> None:
    _raise_explained("E: index_mismatch: the package index that arrived has sha256 1234, not 5678\n")


def _raise_explained(log: str) -> None:
    cause = explain_failure(log)
    raise PhoneError(cause.message, code=cause.code)


def unknown(_: Path) -> None:
    document = {"error": {"code": "eaten_by_a_grue", "message": "from a newer agent"}}
    agent.call(answering(1, "", json.dumps(document)), RunProbe, "probe", "run")


ON_THE_HOST: dict[ErrorCode, Provoke] = {
    ErrorCode(provoke.__name__): provoke
    for provoke in (
        too_much_output, unsupported_phone, needs_a_person, adb_failed, usb_disconnected, package_failed,
        index_mismatch, unknown,
    )
}  # fmt: skip


@pytest.mark.parametrize("code", ON_THE_HOST, ids=str)
def test_the_host_raises_it(code: ErrorCode, tmp_path: Path) -> None:
    with pytest.raises(PhoneError) as raised:
        ON_THE_HOST[code](tmp_path)
    assert raised.value.code is code


@pytest.mark.parametrize(
    ("rc", "stderr", "code"),
    [
        (1, "no such file", ErrorCode.COMMAND_FAILED),
        (NO_EXIT_CODE, "", ErrorCode.KILLED),
        (1, "cat: write error: No space left on device", ErrorCode.DISK_FULL),
    ],
)
def test_a_command_of_the_host_that_fails(rc: int, stderr: str, code: ErrorCode) -> None:
    assert command_error(CommandResult(("cat",), rc, "", stderr, 0.1)).code is code
    with pytest.raises(PhoneError) as raised:  # an agent that dies without a word
        agent.call(answering(rc, "", stderr), RunProbe, "probe", "run")
    assert raised.value.code is code


def test_an_answer_that_is_no_json() -> None:
    with pytest.raises(PhoneError) as raised:
        agent.call(answering(0, "Segmentation fault", ""), RunProbe, "probe", "run")
    assert raised.value.code is ErrorCode.BAD_ANSWER


# -------------------------------------------------------------------------------------------------------- all of them


def test_every_code_is_provoked() -> None:
    assert ON_PHONES.keys() | ON_THE_HOST.keys() | WITH_SERVERS == set(ErrorCode)


def test_those_provoked_with_servers_are_asserted_there() -> None:
    text = CONNECTING.read_text(encoding="utf-8")
    assert [code for code in WITH_SERVERS if f"ErrorCode.{code.name}" not in text] == []


def test_every_code_is_raised_in_the_source() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert [code for code in ErrorCode if f"ErrorCode.{code.name}" not in text] == []


def test_codes_are_plain_words() -> None:
    assert all(code.value == code.name.lower() for code in ErrorCode)


@pytest.mark.parametrize("raw", ["eaten_by_a_grue", "", None, 7, ["lease_held"]])
def test_a_code_from_elsewhere_is_tolerated(raw: object) -> None:
    assert parse_code(raw) is ErrorCode.UNKNOWN


@pytest.mark.parametrize("output", ["", "Traceback", "{}", '{"error": 3}', '{"error": {"code": 1}}', "[" * 100_000])
def test_what_is_no_error_line_is_none(output: str) -> None:
    assert read_error_line(output) is None


def without_code(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "AgentError":
            if not any(each.arg == "code" for each in node.keywords):
                yield f"{path}:{node.lineno}"
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "AgentError" for base in node.bases):
            assigned = [item for item in node.body if isinstance(item, ast.Assign)]
            if "code" not in {ast.unparse(target) for item in assigned for target in item.targets}:
                yield f"{path}:{node.lineno}"


def test_every_agent_error_says_its_code() -> None:
    """Directly raised ones as an argument, classes as an attribute; a bare AgentError would be an internal error."""
    lacking = [each for path in SOURCES for each in without_code(path)]
    assert lacking == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("probe", "run"), ErrorCode.NO_SUCH_RUN),
        (("start", "../run"), ErrorCode.BAD_REQUEST),
        (("tune", "{}"), ErrorCode.BAD_REQUEST),
    ],
)
def test_the_agent_s_command_line_ends_with_an_error_line(
    command: tuple[str, ...], code: ErrorCode, tmp_path: Path
) -> None:
    done = Phone(tmp_path).agent(*command)
    assert (done.returncode, done.stdout) == (1, "")
    reported = read_error_line(done.stderr)
    assert reported is not None
    assert reported[0] is code


def test_an_exception_that_nothing_expects_is_reported_too(tmp_path: Path) -> None:
    """With its traceback, for whoever reads the log."""
    broken = "import sys; from phone_agent import __main__; from phone_agent.job import probe; probe.probe = None; "
    program = f"{broken}sys.argv = ['phone_agent', 'probe', 'run']; sys.exit(__main__.main())"
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert read_error_line(done.stderr) == (ErrorCode.INTERNAL_ERROR, "TypeError: 'NoneType' object is not callable")
