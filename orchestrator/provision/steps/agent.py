"""The agent: installed in its own release directory, verified by hash, activated by one rename, then tested."""

from __future__ import annotations

import hashlib
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.report import LAST_STEP
from orchestrator.provision.resources import read_script
from orchestrator.provision.steps.openmpi import required_files
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.decode import DecodeError, decode_json
from phone_agent.contract.errors import ErrorCode, error_message
from phone_agent.contract.layout import RELEASES
from phone_agent.contract.replies import SelftestReport
from phone_agent.contract.text import last_lines

_LIMIT: Final = 150.0


class AgentStep:
    name = "agent"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        release, tree = facts.agent or ("", "")
        bundle = desired.bundles[facts.arch]
        if release != bundle.id:
            return (f"install agent {bundle.id}",)
        return (f"repair agent {bundle.id}: its files were modified",) if tree != bundle.tree_sha256 else ()

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        bundle = desired.bundles[facts.arch]
        target.connect().put_tree(bundle.path, RELEASES / "incoming")
        done = target.connect().script(read_script("activate-agent"), bundle.id, bundle.tree_sha256)
        if not done.ok:
            raise PhoneError(
                f"cannot activate the agent: {done.stderr.strip()[-300:]}",
                code=ErrorCode.COMMAND_FAILED,
                phase="agent",
            )


class SelfTestStep:
    """Repeated when something that the self-test depends on has changed."""

    name = LAST_STEP

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        return () if facts.texts.get("selftest") == fingerprint(facts, desired) else ("run the agent self-test",)

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        done = target.connect().script(read_script("selftest"), fingerprint(facts, desired), timeout=_LIMIT)
        if not done.ok:
            raise PhoneError(
                f"the agent self-test failed: {failed_checks(done.stdout, done.stderr)}",
                code=ErrorCode.AGENT_DAMAGED,
                phase="selftest",
            )


def fingerprint(facts: TermuxFacts, desired: DesiredState) -> str:
    """A hash of everything that the self-test depends on."""
    versions = [f"{name} {facts.version(name)}" for name in desired.packages.phones]
    files = [file.sha256 for file in required_files(desired)]
    parts = [desired.bundles[facts.arch].id, str(facts.abi), str(facts.mpi4py), *versions, *files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def failed_checks(stdout: str, stderr: str) -> str:
    """`mpi4py: no module named …; disk: …` from the agent's report, or its output if that is not a report."""
    try:
        report = decode_json(SelftestReport, stdout)
        failed = [f"{check.name}: {check.detail}" for check in report.checks if not check.ok]
    except DecodeError:
        failed = []
    return "; ".join(failed) or last_lines(error_message(stderr).strip() or stdout, width=400) or "no output"
