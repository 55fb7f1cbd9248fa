"""Everything some packages need, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import ClusterctlError
from orchestrator.provision.termux.index import Alternatives, Index, Package


class MissingPackageError(ClusterctlError):
    def __init__(self, wanted: str, by: str) -> None:
        super().__init__(
            f"the package repository has no {wanted}, which {by} needs",
            remedy="check the name in provisioning/packages.yaml, or choose another repository with --upstream",
        )


def closure(index: Index, roots: Iterable[str]) -> Index:
    """The roots with all they depend on. Recommended packages stay out: phones are small and links are shared."""
    chosen: dict[str, Package] = {}
    preferred = set(roots)
    waiting = [_root(index, name) for name in sorted(preferred)]
    while waiting:
        package = waiting.pop()
        if package.name in chosen:
            continue
        chosen[package.name] = package
        preferred.add(package.name)
        waiting += [_choose(index, group, preferred, package) for group in package.needs]
    return Index(chosen[name] for name in sorted(chosen))


def _root(index: Index, name: str) -> Package:
    if package := index.get(name):
        return package
    raise MissingPackageError(name, "provisioning/packages.yaml")


def _choose(index: Index, group: Alternatives, preferred: set[str], needed_by: Package) -> Package:
    candidates = [package for relation in group for package in index.candidates(relation)]
    if not candidates:
        raise MissingPackageError(" | ".join(map(str, group)), f"{needed_by.name} {needed_by.version}")
    return next((package for package in candidates if package.name in preferred), candidates[0])
