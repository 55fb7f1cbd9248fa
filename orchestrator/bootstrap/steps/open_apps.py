"""Open Termux:Boot and Termux:API once: before that, Android does not let them run."""

from __future__ import annotations

from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from orchestrator.bootstrap.steps.unpack import open_app


class OpenAppsStep:
    name = "open-apps"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        apps = facts.android.apps
        return tuple(
            action
            for apk in (config.apks.boot, config.apks.api)
            if apk.package not in apps or not apps[apk.package].opened
            for action in open_app(f"open {apk.name} once", apk.component)
        )

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        target.run(self.plan(facts, config))
