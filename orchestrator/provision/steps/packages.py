"""Termux packages: everything at the snapshot's version, and what a worker needs installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.background import run_in_background
from orchestrator.provision.desired_state import Repository, Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.failures import explain
from orchestrator.provision.steps.step import Changes, Site
from orchestrator.provision.termux.closure import closure
from orchestrator.provision.termux.index import Package
from orchestrator.provision.termux.version import Version
from phone_agent.contract.errors import ErrorCode

_LIMIT: Final = 3600.0
_SETTLED: Final = frozenset({"installed", "config-files", "not-installed"})


class Packages:
    name = "packages"

    def check(self, facts: Facts, want: Want) -> Changes:
        repository = want.repositories[facts.arch]
        lines = (
            _finish(broken(facts)),
            _install(missing(facts, repository), want.packages.phones),
            _change("upgrade", older(facts, repository)),
            _change("downgrade", newer(facts, repository)),
        )
        return tuple(line for line in lines if line)

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        install_packages(site, facts, want, want.packages.phones)


def install_packages(site: Site, facts: Facts, want: Want, names: Iterable[str]) -> None:
    repository = want.repositories[facts.arch]
    if repository.url is None:
        raise PhoneError("no package mirror is running", code=ErrorCode.INTERNAL_ERROR, phase="packages")
    arguments = (repository.url, repository.sha256, str(facts.sshd_pid or ""), *names)
    job = run_in_background(site.connect, "packages", "packages", *arguments, limit=_LIMIT)
    if job.rc != 0:
        cause = explain(job.log)
        raise PhoneError(cause.message, code=cause.code, phase="packages", remedy=cause.remedy)


def missing(facts: Facts, repository: Repository) -> tuple[str, ...]:
    return tuple(name for name in repository.needed if facts.version(name) is None)


def older(facts: Facts, repository: Repository) -> tuple[str, ...]:
    """Installed, and older than the snapshot."""
    return tuple(name for name, here, offered in _pairs(facts, repository) if is_older(here, offered))


def newer(facts: Facts, repository: Repository) -> tuple[str, ...]:
    """Installed, and newer than the snapshot: a phone set up later than the others.

    Termux's packages name no versions of what they need, so libraries must not be newer than the programs either.
    """
    return tuple(name for name, here, offered in _pairs(facts, repository) if is_older(offered, here))


def _pairs(facts: Facts, repository: Repository) -> Iterator[tuple[str, str, str]]:
    """Name, installed version, offered version."""
    for name, found in sorted(facts.packages.items()):
        if found.status == "installed" and (offered := repository.index.get(name)):
            yield name, found.version, offered.version


def broken(facts: Facts) -> tuple[str, ...]:
    return tuple(name for name, found in sorted(facts.packages.items()) if found.status not in _SETTLED)


@lru_cache(maxsize=4096)
def is_older(version: str, other: str) -> bool:
    return version != other and Version(version) < Version(other)


def space_needed(facts: Facts, repository: Repository) -> int:
    """Bytes: the archives while they are installed, and what comes out of them."""
    names = (*missing(facts, repository), *older(facts, repository), *newer(facts, repository))
    return _space(repository.index[name] for name in names)


def space_to_add(facts: Facts, repository: Repository, names: Iterable[str]) -> int:
    """The same for packages beyond those of every phone, with all they need."""
    return _space(package for package in closure(repository.index, names) if facts.version(package.name) is None)


def _space(packages: Iterable[Package]) -> int:
    return sum(package.size + package.installed_bytes for package in packages)


def _install(names: tuple[str, ...], asked_for: tuple[str, ...]) -> str:
    named = [name for name in asked_for if name in names]
    others = len(names) - len(named)
    if not names:
        return ""
    return f"install {', '.join(named) or 'dependencies'}" + (f" and {others} that they need" if others else "")


def _change(verb: str, names: tuple[str, ...]) -> str:
    return f"{verb} {_some(names)}" if names else ""


def _finish(names: tuple[str, ...]) -> str:
    return f"finish the interrupted installation of {_some(names)}" if names else ""


def _some(names: tuple[str, ...], count: int = 4) -> str:
    left = len(names) - count
    return ", ".join(names[:count]) + (f" and {left} more" if left > 0 else "")
