"""What a command over ssh finds: asked with nothing but bash, so that a phone without Python answers too."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from orchestrator.health.vitals import clock_offset
from phone_agent.contract.assumptions import Found, failed, judged, unknown

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

SCRIPT: Final = files("orchestrator.selftest").joinpath("session.sh").read_text(encoding="utf-8")
MOST_OFF_S: Final = 2.0
_LINES: Final = 100
_SENTINEL: Final = "fine"  # what the script that is tried prints


@dataclass(frozen=True)
class Session:
    told: dict[str, str]
    window: tuple[float, float]  # when it was asked and answered, by this computer's clock


def ask_session(connection: PhoneConnection) -> Session:
    asked = time.time()
    answer = connection.script(SCRIPT, timeout=30)
    lines = (line.partition("\t") for line in answer.stdout.splitlines()[:_LINES])
    return Session({name: value[:2000] for name, tab, value in lines if tab}, (asked, time.time()))


def judge_session(session: Session) -> Found:
    told = {name: session.told.get(name, "") for name in ("PATH", "PREFIX", "TMPDIR", "HOME", "LANG", "SHELL")}
    library_path, writable = session.told.get("LD_LIBRARY_PATH", ""), session.told.get("tmpdir_writable")
    evidence = {**told, "LD_LIBRARY_PATH": library_path, "python3": session.told.get("python3", "")}
    wrong = [
        *([] if told["PREFIX"] else ["PREFIX is not set"]),
        *([] if f"{told['PREFIX']}/bin" in told["PATH"].split(":") else ["PATH has no $PREFIX/bin"]),
        *([] if writable == "yes" else ["TMPDIR is not set, or cannot be written"]),
        *(["LD_LIBRARY_PATH is set"] if library_path else []),
    ]
    return judged(not wrong, "; ".join(wrong) or f"PATH {told['PATH']}, TMPDIR {told['TMPDIR']}", **evidence)


def judge_preload(session: Session) -> Found:
    printed, preload = session.told.get("env_script", ""), session.told.get("LD_PRELOAD", "")
    if not printed:
        return unknown("the script could not be tried")
    starts = printed == _SENTINEL
    told = "starts" if starts else f"does not start: {printed}"
    return judged(starts, f"a script with #!/usr/bin/env {told}", LD_PRELOAD=preload)


def judge_clock(session: Session) -> Found:
    try:
        epoch = float(session.told.get("epoch", ""))
    except ValueError:
        return unknown("it does not tell the time")
    offset = clock_offset(epoch, session.window)
    if offset is None:
        return failed("it tells no time")
    return judged(abs(offset) <= MOST_OFF_S, f"{abs(offset):.1f} s off this computer's", offset_s=round(offset, 2))
