"""The agent's own word that it works here; asked again whenever something it rests on changed."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.report import LAST_STEP
from orchestrator.provision.resources import script
from orchestrator.provision.steps.openmpi import required_files
from orchestrator.provision.steps.step import Changes, Site
from phone_agent.contract.errors import ErrorCode, error_message

_LIMIT: Final = 150.0


class SelfTest:
    name = LAST_STEP

    def check(self, facts: Facts, want: Want) -> Changes:
        return () if facts.texts.get("selftest") == fingerprint(facts, want) else ("test the agent",)

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        done = site.connect().script(script("selftest"), fingerprint(facts, want), timeout=_LIMIT)
        if not done.ok:
            raise PhoneError(
                f"the agent does not work: {complaints(done.stdout, done.stderr)}",
                code=ErrorCode.AGENT_DAMAGED,
                phase="selftest",
            )


def fingerprint(facts: Facts, want: Want) -> str:
    """Of everything a self-test is about."""
    versions = [f"{name} {facts.version(name)}" for name in want.packages.phones]
    files = [file.sha256 for file in required_files(want)]
    parts = [want.bundles[facts.arch].id, str(facts.abi), str(facts.mpi4py), *versions, *files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def complaints(stdout: str, stderr: str) -> str:
    """`mpi4py: no module named …; disk: …` from the agent's answer, or what it printed instead of one."""
    try:
        checks = json.loads(stdout)["checks"]
        failed = [f"{check['name']}: {check['detail']}" for check in checks if not check["ok"]]
    except (ValueError, KeyError, TypeError):
        failed = []
    return "; ".join(failed) or (error_message(stderr).strip() or stdout.strip() or "it printed nothing")[-400:]
