"""Termux:Boot and Termux:API, opened once: before that, Android does not let them run."""

from __future__ import annotations

from orchestrator.bootstrap.steps.step import Action, Known, Plain, Want
from orchestrator.bootstrap.steps.unpack import start


class Opened(Plain):
    name = "opened"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        apps = known.seen.apps
        return tuple(
            action
            for apk in (want.apks.boot, want.apks.api)
            if apk.package not in apps or not apps[apk.package].opened
            for action in start(f"open {apk.name} once", apk.component)
        )
