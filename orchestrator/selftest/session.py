"""Checks of the environment of an ssh command. Probed with bash alone, so that it works without Python."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from orchestrator.provision.fact_parsing import clock_offset
from phone_agent.contract.assumptions import CheckResult, failed, ok_if, unknown

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

SCRIPT: Final = files("orchestrator.selftest").joinpath("session.sh").read_text(encoding="utf-8")
MAX_OFFSET_S: Final = 2.0
_LINES: Final = 100
_SENTINEL: Final = "fine"  # printed by the test script


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
