"""The agent: installed in its own release directory, verified by hash, activated by one rename."""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.resources import read_script
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.layout import RELEASES


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
