"""Records fsync and rename calls: what would survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class DiskLog:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._steps: list[tuple[str, str, str]] = []
        fsync, rename, replace = os.fsync, os.rename, os.replace

        def logged_fsync(handle: int) -> None:
            fsync(handle)
            self._steps.append(("fsync", str(Path(f"/proc/self/fd/{handle}").readlink()), ""))

        def logged_rename(source: str | Path, target: str | Path) -> None:
            rename(source, target)
            self._steps.append(("rename", str(source), str(target)))

        def logged_replace(source: str | Path, target: str | Path) -> None:
            replace(source, target)
            self._steps.append(("rename", str(source), str(target)))

        monkeypatch.setattr("os.fsync", logged_fsync)
        monkeypatch.setattr("os.rename", logged_rename)
        monkeypatch.setattr("os.replace", logged_replace)

    def is_durable(self, path: Path) -> bool:
        """Whether the content was synced before the last rename to `path`, and the directory after it."""
        renames = [i for i, (what, _, target) in enumerate(self._steps) if what == "rename" and target == str(path)]
        if not renames:
            return False
        at = renames[-1]
        source = self._steps[at][1]
        return ("fsync", source, "") in self._steps[:at] and ("fsync", str(path.parent), "") in self._steps[at:]

    def is_synced(self, directory: Path) -> bool:
        return ("fsync", str(directory), "") in self._steps
