"""Dependency closure of packages."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import ClusterctlError
from orchestrator.provision.termux.index import Alternatives, Index, Package


class MissingPackageError(ClusterctlError):
    def __init__(self, missing: str, needed_by: str) -> None:
        super().__init__(
            f"the package repository has no {missing}, which {needed_by} needs",
            remedy="check the name in provisioning/packages.yaml, or use another repository (--upstream)",
        )


def closure(index: Index, roots: Iterable[str]) -> Index:
    """The roots with all their dependencies, without recommended packages: phone storage is small."""
    selected: dict[str, Package] = {}
    preferred = set(roots)
    waiting = [_root(index, name) for name in sorted(preferred)]
    while waiting:
        package = waiting.pop()
        if package.name in selected:
            continue
        selected[package.name] = package
        preferred.add(package.name)
        waiting += [_choose(index, group, preferred, package) for group in package.needs]
    return Index(selected[name] for name in sorted(selected))


def _root(index: Index, name: str) -> Package:
    if package := index.get(name):
        return package
    raise MissingPackageError(name, "provisioning/packages.yaml")


def _choose(index: Index, group: Alternatives, preferred: set[str], needed_by: Package) -> Package:
    candidates = [package for relation in group for package in index.candidates(relation)]
    if not candidates:
        raise MissingPackageError(" | ".join(map(str, group)), f"{needed_by.name} {needed_by.version}")
    return next((package for package in candidates if package.name in preferred), candidates[0])
