"""The agent: a release directory of its own, checked file by file, put in use by one rename."""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.resources import script
from orchestrator.provision.steps.step import Changes, Site
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.layout import RELEASES


class Agent:
    name = "agent"

    def check(self, facts: Facts, want: Want) -> Changes:
        release, tree = facts.agent or ("", "")
        bundle = want.bundles[facts.arch]
        if release != bundle.id:
            return (f"install agent {bundle.id}",)
        return (f"repair agent {bundle.id}: its files were changed",) if tree != bundle.tree_sha256 else ()

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        bundle = want.bundles[facts.arch]
        site.connect().put_tree(bundle.path, RELEASES / "incoming")
        done = site.connect().script(script("activate-agent"), bundle.id, bundle.tree_sha256)
        if not done.ok:
            raise PhoneError(
                f"cannot put the agent in use: {done.stderr.strip()[-300:]}",
                code=ErrorCode.COMMAND_FAILED,
                phase="agent",
            )
