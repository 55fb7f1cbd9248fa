"""Termux packages: everything at the version of the snapshot, plus the packages that a worker needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.background import run_in_background
from orchestrator.provision.desired_state import Changes, DesiredState, Repository, SshTarget
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.termux.index import Package, closure
from orchestrator.provision.termux.version import Version
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

_LIMIT: Final = 3600.0
_COMPLETE: Final = frozenset({"installed", "config-files", "not-installed"})


class PackagesStep:
    name = "packages"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        repository = desired.repositories[facts.arch]
        lines = (
            _finish(broken(facts)),
            _install(missing(facts, repository), desired.packages.phones),
            _change("upgrade", older(facts, repository)),
            _change("downgrade", newer(facts, repository)),
        )
        return tuple(line for line in lines if line)

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        install_packages(target, facts, desired, desired.packages.phones)


def install_packages(target: SshTarget, facts: TermuxFacts, desired: DesiredState, names: Iterable[str]) -> None:
    repository = desired.repositories[facts.arch]
    if repository.url is None:
        raise PhoneError("no package mirror is running", code=ErrorCode.INTERNAL_ERROR, phase="packages")
    arguments = (repository.url, repository.sha256, str(facts.sshd_pid or ""), *names)
    job = run_in_background(target.connect, "packages", "packages", *arguments, limit=_LIMIT)
    if job.rc != 0:
        cause = explain_failure(job.log)
        raise PhoneError(cause.message, code=cause.code, phase="packages", remedy=cause.remedy)


def missing(facts: TermuxFacts, repository: Repository) -> tuple[str, ...]:
    return tuple(name for name in repository.needed if facts.version(name) is None)


def older(facts: TermuxFacts, repository: Repository) -> tuple[str, ...]:
    """Installed packages that are older than in the snapshot."""
    return tuple(name for name, installed, offered in _pairs(facts, repository) if is_older(installed, offered))


def newer(facts: TermuxFacts, repository: Repository) -> tuple[str, ...]:
    """Installed packages that are newer than in the snapshot: the phone was set up later than the others.

    Termux packages depend on libraries without naming versions, so newer libraries may break them as well.
    """
    return tuple(name for name, installed, offered in _pairs(facts, repository) if is_older(offered, installed))


def _pairs(facts: TermuxFacts, repository: Repository) -> Iterator[tuple[str, str, str]]:
    """Name, installed version, offered version."""
    for name, found in sorted(facts.packages.items()):
        if found.status == "installed" and (offered := repository.index.get(name)):
            yield name, found.version, offered.version


def broken(facts: TermuxFacts) -> tuple[str, ...]:
    return tuple(name for name, found in sorted(facts.packages.items()) if found.status not in _COMPLETE)


@lru_cache(maxsize=4096)
def is_older(version: str, other: str) -> bool:
    return version != other and Version(version) < Version(other)


def space_needed(facts: TermuxFacts, repository: Repository) -> int:
    """Bytes needed for the archives and the installed files."""
    names = (*missing(facts, repository), *older(facts, repository), *newer(facts, repository))
    return _space(repository.index[name] for name in names)


def space_to_add(facts: TermuxFacts, repository: Repository, names: Iterable[str]) -> int:
    """Bytes needed to add these packages and their dependencies."""
    return _space(package for package in closure(repository.index, names) if facts.version(package.name) is None)


def _space(packages: Iterable[Package]) -> int:
    return sum(package.size + package.installed_bytes for package in packages)


def _install(names: tuple[str, ...], requested: tuple[str, ...]) -> str:
    named = [name for name in requested if name in names]
    others = len(names) - len(named)
    if not names:
        return ""
    return f"install {', '.join(named) or 'dependencies'}" + (f" and {_count(others)}" if others else "")


def _count(dependencies: int) -> str:
    return f"{dependencies} dependenc{'y' if dependencies == 1 else 'ies'}"


def _change(verb: str, names: tuple[str, ...]) -> str:
    return f"{verb} {_shortened(names)}" if names else ""


def _finish(names: tuple[str, ...]) -> str:
    return f"finish the interrupted installation of {_shortened(names)}" if names else ""


def _shortened(names: tuple[str, ...], count: int = 4) -> str:
    left = len(names) - count
    return ", ".join(names[:count]) + (f" and {left} more" if left > 0 else "")
