"""One phone's answers, as they come. What a phone sends is bounded and made plain: nobody has vouched for it yet."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import agent
from orchestrator.selftest.report import Answer, answered
from orchestrator.text import one_line
from phone_agent.api.selftest import checks
from phone_agent.contract import layout
from phone_agent.contract.assumptions import Belief, Found, Status, WiredNetwork

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

AGENT: Final = layout.ROOT / "selftest-agent"  # brought along: a phone that could not be provisioned answers as well
_MARGIN_S: Final = 60.0
_LONGEST_TOLD: Final = 600
_LARGEST_EVIDENCE: Final = 20_000


def bring_agent(connection: PhoneConnection, bundle: Path) -> None:
    connection.put_tree(bundle, AGENT)


def take_agent_away(connection: PhoneConnection) -> None:
    connection.run(["rm", "-rf", "--", str(AGENT)])


def examine(
    connection: PhoneConnection, where: WiredNetwork, *, virtual: bool, only: Collection[str] = ()
) -> Iterator[Belief | Answer]:
    """A belief when it is looked into, then the answer to it; those that never come are not there."""
    known = {check.belief.name: check for check in checks(where)}
    silence = max(check.limit_s for check in known.values()) + _MARGIN_S
    begun, started = "", time.monotonic()
    with connection.open_stream(_argv(where, only), env={"PYTHONPATH": str(AGENT)}, silence=silence) as stream:
        for line in stream:
            said = _object(line)
            check = known.get(str(said.get("check")))
            if check is None:
                continue
            if "status" not in said:
                begun, started = check.belief.name, time.monotonic()
                yield check.belief
            elif begun == check.belief.name:  # once
                begun = ""
                yield answered(check.belief, parse(said), time.monotonic() - started, virtual=virtual)
    if stream.rc:
        code, complaint = agent.reported(stream.stderr, stream.rc)
        raise PhoneError(f"the agent ended with {stream.rc}: {one_line(complaint[-300:])}", code=code)


def parse(said: Mapping[str, Any]) -> Found:
    """A finding from what a phone wrote, whatever that is."""
    try:
        status = Status(str(said.get("status")))
    except ValueError:
        return Found(Status.UNKNOWN, "the answer makes no sense")
    return Found(status, one_line(str(said.get("told")), _LONGEST_TOLD), _plain(said.get("evidence")))


def _plain(evidence: Any) -> dict[str, Any]:
    if not isinstance(evidence, dict):
        return {}
    if len(json.dumps(evidence)) > _LARGEST_EVIDENCE:
        return {"cut": "more evidence than a check has"}
    return evidence


def _argv(where: WiredNetwork, only: Collection[str]) -> list[str]:
    place = (
        "--address",
        where.address,
        "--interface",
        where.interface,
        "--host",
        where.host,
        "--port",
        str(where.port),
    )
    return agent.argv("check-assumptions", *place, *(f"--only={name}" for name in only))


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
