"""The daemons that mpirun asks for. The host starts them: phones cannot start programs on each other."""

from __future__ import annotations

import shlex
import time
from itertools import pairwise
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.files import read_int, read_tail
from phone_agent.contract.replies import DaemonRequests
from phone_agent.device import process
from phone_agent.job import run_directory
from phone_agent.job import state as run_state

POLL_S = 0.05


def wait_for_daemons(run_id: str, attempt: int, count: int, timeout_s: float) -> DaemonRequests:
    """Returns once mpirun has asked for `count` daemons."""
    directory = run_directory.find(run_id, attempt)
    deadline = time.monotonic() + timeout_s
    while len(commands := _commands(directory / layout.DAEMONS, count)) < count:
        if _mpirun_ended(directory):
            last = next(reversed(read_tail(directory / layout.MPIRUN_LOG)), "no output")
            raise AgentError(f"mpirun ended before its daemons were started: {last}", code=ErrorCode.START_FAILED)
        if time.monotonic() > deadline:
            raise AgentError(f"mpirun did not ask for its daemons within {timeout_s:.0f} s", code=ErrorCode.TIMED_OUT)
        time.sleep(POLL_S)
    return _requests(commands)


def _requests(commands: list[str]) -> DaemonRequests:
    """From `ADDRESS orted … -mca NAME VALUE …`, one command per daemon. They differ in address and vpid only."""
    vpids = {}
    for command in commands:
        address, *words = shlex.split(command)
        parameters = {name: words[place + 2] for place, (flag, name) in enumerate(pairwise(words)) if flag == "-mca"}
        vpids[address] = int(parameters["ess_base_vpid"])
    return DaemonRequests(parameters["orte_hnp_uri"], vpids, parameters.get("orte_node_regex", ""))


def _mpirun_ended(directory: Path) -> bool:
    state = run_state.read(directory)
    if state is not None:
        return state.is_final
    pid = read_int(directory / layout.JOB_PID_FILE)
    return pid is not None and not process.identify(pid).alive()


def _commands(directory: Path, count: int) -> list[str]:
    """Complete ones. The files are not read before there are enough of them."""
    files = [path for path in directory.iterdir() if path.name != layout.RECORD_DAEMON]
    if len(files) < count:
        return []
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    return [text.strip() for text in texts if text.endswith("\n")]
