"""Checks that the host makes: the environment of an ssh command, logins between phones, and an allreduce.

The environment is probed with bash alone, so that it works without Python.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from orchestrator.bench.allreduce import AllreduceRequest, bench_allreduce
from orchestrator.errors import ClusterctlError
from orchestrator.fleet import Fleet, PhoneConnection
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.provision.fact_parsing import clock_offset
from orchestrator.text import one_line
from phone_agent.contract.assumptions import CheckResult, failed, ok, ok_if, unknown
from phone_agent.contract.dataset_delivery import LOGIN_CHECK

SCRIPT: Final = files("orchestrator.selftest").joinpath("session.sh").read_text(encoding="utf-8")
MAX_OFFSET_S: Final = 2.0
_LINES: Final = 100
_SENTINEL: Final = "fine"  # printed by the test script
REQUEST: Final = AllreduceRequest(megabytes=4.0, repeats=3)
_SSH: Final = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
_TIMEOUT_S: Final = 40.0


@dataclass(frozen=True)
class SessionProbe:
    values: dict[str, str]
    window: tuple[float, float]  # when the probe started and ended, by the clock of the host


def probe_session(connection: PhoneConnection) -> SessionProbe:
    started = time.time()
    result = connection.script(SCRIPT, timeout=30)
    lines = (line.partition("\t") for line in result.stdout.splitlines()[:_LINES])
    return SessionProbe({name: value[:2000] for name, tab, value in lines if tab}, (started, time.time()))


def check_session(session: SessionProbe) -> CheckResult:
    values = {name: session.values.get(name, "") for name in ("PATH", "PREFIX", "TMPDIR", "HOME", "LANG", "SHELL")}
    library_path, writable = session.values.get("LD_LIBRARY_PATH", ""), session.values.get("tmpdir_writable")
    evidence = {**values, "LD_LIBRARY_PATH": library_path, "python3": session.values.get("python3", "")}
    wrong = [
        *([] if values["PREFIX"] else ["PREFIX is not set"]),
        *([] if f"{values['PREFIX']}/bin" in values["PATH"].split(":") else ["PATH has no $PREFIX/bin"]),
        *([] if writable == "yes" else ["TMPDIR is not set or not writable"]),
        *(["LD_LIBRARY_PATH is set"] if library_path else []),
    ]
    return ok_if(not wrong, "; ".join(wrong) or f"PATH {values['PATH']}, TMPDIR {values['TMPDIR']}", **evidence)


def check_preload(session: SessionProbe) -> CheckResult:
    printed, preload = session.values.get("env_script", ""), session.values.get("LD_PRELOAD", "")
    if not printed:
        return unknown("the test script could not be run")
    starts = printed == _SENTINEL
    detail = "starts" if starts else f"does not start: {printed}"
    return ok_if(starts, f"a script with #!/usr/bin/env {detail}", LD_PRELOAD=preload)


def check_clock(session: SessionProbe) -> CheckResult:
    try:
        epoch = float(session.values.get("epoch", ""))
    except ValueError:
        return unknown("the time is not readable")
    offset = clock_offset(epoch, session.window)
    if offset is None:
        return failed("the time is not plausible")
    return ok_if(
        abs(offset) <= MAX_OFFSET_S, f"{abs(offset):.1f} s off this computer's clock", offset_s=round(offset, 2)
    )


def check_login(connection: PhoneConnection, neighbor: Phone) -> CheckResult:
    """Completes the ssh handshake, as a dataset transfer does: sshd penalizes clients that only open the port."""
    ssh = ("ssh", *_SSH, "-p", str(neighbor.ssh_port), "--", str(neighbor.address))
    done = connection.run((*ssh, LOGIN_CHECK), timeout=_TIMEOUT_S)
    route = f"{connection.phone.name} to {neighbor.name}"
    if done.ok:
        return ok(f"{route}: login works")
    output = one_line(" ".join((done.stderr or done.stdout).split())[-300:])
    return failed(f"{route}: exit code {done.rc}: {output}")


def check_allreduce(cluster: Cluster, fleet: Fleet, phones: Sequence[Phone]) -> CheckResult:
    try:
        result = bench_allreduce(cluster, fleet, phones, REQUEST)
    except ClusterctlError as error:
        return failed(one_line(error.message, 1000))
    line_rate = f"{result.line_rate_fraction:.0%} of line rate"
    evidence = {"seconds": result.all_seconds, "bytes": result.bytes, "cpu_seconds": result.cpu_seconds}
    detail = f"{REQUEST.megabytes:g} MB over {len(phones)} phones in {result.seconds:.3f} s, {line_rate}"
    return ok_if(result.correct, detail if result.correct else f"wrong sum: {detail}", **evidence)
