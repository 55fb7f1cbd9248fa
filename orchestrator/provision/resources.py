"""The data files of `provisioning/`: files installed on phones, and scripts that run there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import yaml

from orchestrator.errors import ClusterctlError

_ROOT: Final = files("provisioning")


@cache
def read_text(name: str) -> str:
    return _ROOT.joinpath(name).read_text(encoding="utf-8")


def read_script(name: str) -> str:
    """A bash script for phones. Its text is fixed: data reaches it as arguments or on standard input."""
    return read_text(f"scripts/{name}.sh")


def render_template(name: str, **values: str) -> str:
    """A file with every @NAME@ replaced. Each value must be one line."""
    text = read_text(name)
    for key, value in values.items():
        if "\n" in value:
            raise ClusterctlError(f"{name}: @{key}@ must be one line")
        text = text.replace(f"@{key}@", value)
    return text


@dataclass(frozen=True)
class PackageList:
    upstream: str
    phones: tuple[str, ...]
    builder: tuple[str, ...]
    gpu_builder: tuple[str, ...] = ()


@cache
def package_list() -> PackageList:
    raw = yaml.safe_load(read_text("packages.yaml"))
    return PackageList(raw["upstream"], tuple(raw["phones"]), tuple(raw["builder"]), tuple(raw["gpu_builder"]))
