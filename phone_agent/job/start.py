"""Starts mpirun on the head phone and supervises it until it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, BadlyStagedError, ErrorCode
from phone_agent.contract.schema import LaunchSpec, SchemaError
from phone_agent.device import process
from phone_agent.job import postmortem, run_directory
from phone_agent.job.state import DONE, FAILED, RUNNING, STARTING, STOPPED, YIELDED, RunState

NEEDED = (layout.RUN_FILE, layout.LAUNCH_FILE, layout.HOSTFILE)


def start(run_id: str, attempt: int = 0) -> int:
    """The pid of mpirun, which keeps running in the background."""
    directory = run_directory.find(run_id, attempt)
    launch = _read_launch(directory, run_id, attempt)
    _claim(directory, run_id)
    reply = json.loads(detach(lambda pipe: _run_mpirun(directory, launch, pipe), directory / layout.MPIRUN_LOG) or "{}")
    if "pid" not in reply:
        raise AgentError(
            f"run {run_id} did not start: {reply.get('error', 'the parent process of mpirun died')}",
            code=ErrorCode.START_FAILED,
        )
    return int(reply["pid"])


def _read_launch(directory: Path, run_id: str, attempt: int) -> LaunchSpec:
    missing = [name for name in NEEDED if not (directory / name).is_file()]
    if missing:
        raise BadlyStagedError(f"{directory} lacks {', '.join(missing)}: stage the run again")
    spec = run_directory.read_spec(directory)
    try:
        launch = LaunchSpec.from_json((directory / layout.LAUNCH_FILE).read_text(encoding="utf-8"))
    except SchemaError as error:
        raise BadlyStagedError(f"{directory}: {error}") from None
    if not spec.run_id == launch.run_id == run_id:
        raise BadlyStagedError(
            f"{directory} has files from two runs, {spec.run_id} and {launch.run_id}: stage the run again"
        )
    if not spec.attempt == launch.attempt == attempt:
        raise BadlyStagedError(f"{directory} has files from another attempt ({spec.attempt}): stage the run again")
    return launch


def _claim(directory: Path, run_id: str) -> None:
    """Creating the state file is atomic: an attempt starts only once."""
    try:
        os.close(os.open(directory / layout.STATE_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise AgentError(f"this attempt of run {run_id} was already started", code=ErrorCode.ALREADY_STARTED) from None
    RunState(run_id, STARTING, process.identify(os.getpid()), time.time()).write(directory)


def _run_mpirun(directory: Path, launch: LaunchSpec, pipe: int) -> None:
    """Runs in the detached process."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    state = RunState(launch.run_id, STARTING, process.identify(os.getpid()), time.time())
    state.write(directory)
    try:
        mpirun = _launch(launch)
    except OSError as error:
        replace(state, state=FAILED, ended=time.time(), rc=127).write(directory)
        postmortem.write_error(directory, f"cannot start mpirun: {error}", ErrorCode.START_FAILED)
        _reply(pipe, {"error": str(error)})
        return
    state = replace(state, state=RUNNING, process=process.identify(mpirun.pid))
    state.write(directory)
    _reply(pipe, {"pid": mpirun.pid})
    _record_end(directory, state, mpirun.wait())


def _launch(launch: LaunchSpec) -> subprocess.Popen[bytes]:
    """In a new session, by which `stop` finds mpirun and its ranks."""
    environment = {**os.environ, **launch.env}
    argv = (*_bind_to_wired_address(launch), *launch.argv)
    return subprocess.Popen(argv, env=environment, cwd=Path.home(), stdin=subprocess.DEVNULL, start_new_session=True)


def _bind_to_wired_address(launch: LaunchSpec) -> tuple[str, ...]:
    """Command prefix that binds mpirun's listeners to the wired address, if that is known."""
    address, start = launch.env.get(layout.WIRED_ADDRESS), layout.local(layout.WIRED)
    return ("bash", str(start), address) if address and start.is_file() else ()


def _reply(pipe: int, reply: dict[str, object]) -> None:
    with os.fdopen(pipe, "w", encoding="utf-8") as channel, suppress(BrokenPipeError):
        json.dump(reply, channel)


def _record_end(directory: Path, state: RunState, rc: int) -> None:
    if rc == 0:
        outcome = {"yield": YIELDED, "stop": STOPPED}.get(postmortem.last_event(directory), DONE)
    elif (directory / layout.STOP_FILE).exists():
        outcome = STOPPED
    else:
        outcome = FAILED
        postmortem.collect(directory, rc)
    replace(state, state=outcome, ended=time.time(), rc=rc).write(directory)


def detach(work: Callable[[int], None], log: Path) -> str:
    """Run `work` in a process that outlives this one, with its output in `log`.

    `work` gets a pipe for one reply, which it must close. Returns the reply.
    """
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(reader)
            _run(work, writer, log)
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "r", encoding="utf-8") as reply:
        return reply.read()


def _run(work: Callable[[int], None], writer: int, log: Path) -> None:
    """Never returns: the code above the fork belongs to the parent."""
    try:
        _redirect(log)
        work(writer)
    except BaseException:  # noqa: BLE001 - nothing above could catch it; it goes to the log
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _redirect(log: Path) -> None:
    """An open stdin, stdout or stderr would keep the SSH session open."""
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
