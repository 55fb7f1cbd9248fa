"""The Termux packages listed in packages.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
MAINTAINER = "clusterctl lab"


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    bootstrap: str | None = None
    essential: bool = False
    depends: str = ""
    recommends: str = ""
    provides: str = ""
    conflicts: str = ""
    conffiles: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    renamed_programs: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    shims: dict[str, str] = field(default_factory=dict)
    optional: bool = False

    def at_bootstrap(self) -> Package:
        """The package in the version that a bare phone has."""
        return self if self.bootstrap in {None, "same"} else replace(self, version=self.bootstrap)

    def control(self, installed_kib: int) -> dict[str, str]:
        """The control fields. They must be identical everywhere, because apt treats a difference as another build."""
        fields = {
            "Package": self.name,
            "Essential": "yes" if self.essential else "",
            "Architecture": "all",
            "Version": self.version,
            "Maintainer": MAINTAINER,
            "Installed-Size": str(installed_kib),
            "Provides": self.provides,
            "Depends": self.depends.replace("@VERSION@", self.version),
            "Recommends": self.recommends,
            "Conflicts": self.conflicts,
            "Description": f"lab replacement for the Termux package {self.name}",
        }
        return {name: value for name, value in fields.items() if value}


@cache
def load_catalog() -> tuple[Package, ...]:
    entries: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "packages.yaml").read_text())
    return tuple(_package(name, entry) for name, entry in sorted(entries.items()))


def _package(name: str, entry: dict[str, Any]) -> Package:
    fields = {**entry, "conffiles": tuple(entry.get("conffiles", ()))}
    for names in ("programs", "modules"):
        fields[names] = tuple(entry.get(names, "").split())
    return Package(name=name, **fields)


def paragraph(fields: dict[str, str]) -> str:
    """Format fields as one paragraph of a control file, a status file or a package index."""
    return "".join(f"{name}: {value}\n" for name, value in fields.items())
