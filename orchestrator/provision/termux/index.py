"""The package index of a repository: the stanzas of a `Packages` file, and the dependency closure of packages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from orchestrator.errors import ClusterctlError
from orchestrator.provision.termux.version import Version

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_RELATION: Final = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*)(:\w+)?\s*(\(\s*(?P<op>[<>=]+)\s*(?P<version>[^\s)]+)\s*\))?\s*"
)


class MalformedIndexError(ClusterctlError):
    """A repository index that cannot be parsed."""


@dataclass(frozen=True)
class Relation:
    """`libssl (>= 3)`: a package name, optionally with a version constraint."""

    name: str
    operator: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.operator} {self.version})" if self.operator else self.name

    def admits(self, version: str) -> bool:
        return self.operator is None or self.version is None or Version(version).satisfies(self.operator, self.version)


Alternatives = tuple[Relation, ...]  # `a | b`: any one of them is enough


@dataclass(frozen=True)
class Package:
    fields: Mapping[str, str]  # in the stanza's order

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def version(self) -> str:
        return self.fields["Version"]

    @property
    def filename(self) -> str:
        return self.fields["Filename"]

    @property
    def sha256(self) -> str:
        return self.fields["SHA256"]

    @property
    def size(self) -> int:
        return int(self.fields["Size"])

    @property
    def installed_bytes(self) -> int:
        """`Installed-Size` is in KiB. Without it: an estimate of four times the archive."""
        return int(self.fields["Installed-Size"]) * 1024 if "Installed-Size" in self.fields else 4 * self.size

    @cached_property
    def needs(self) -> tuple[Alternatives, ...]:
        return (*relations(self.fields.get("Pre-Depends", "")), *relations(self.fields.get("Depends", "")))

    @cached_property
    def provides(self) -> tuple[Relation, ...]:
        return tuple(each for group in relations(self.fields.get("Provides", "")) for each in group)

    def stanza(self, **changes: str) -> str:
        return "".join(f"{key}: {value}\n" for key, value in {**self.fields, **changes}.items())


class Index:
    """Packages by name (the newest of each) and by what they provide."""

    def __init__(self, packages: Iterable[Package]) -> None:
        self._by_name: dict[str, Package] = {}
        self._providers: dict[str, list[tuple[Package, Relation]]] = defaultdict(list)
        for package in packages:
            known = self._by_name.get(package.name)
            if known is None or Version(known.version) < Version(package.version):
                self._by_name[package.name] = package
        for package in self._by_name.values():
            for provided in package.provides:
                self._providers[provided.name].append((package, provided))

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Package:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Package]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Package | None:
        return self._by_name.get(name)

    def candidates(self, relation: Relation) -> Iterator[Package]:
        """Packages that satisfy a relation: the one of that name first, then those that provide it."""
        own = self._by_name.get(relation.name)
        if own and relation.admits(own.version):
            yield own
        for package, provided in self._providers.get(relation.name, ()):
            if relation.operator is None or (provided.version and relation.admits(provided.version)):
                yield package


def parse_packages(text: str) -> Index:
    return Index(_package(block) for block in re.split(r"\n\s*\n", text) if block.strip())


def _package(block: str) -> Package:
    fields = parse_fields(block)
    missing = [key for key in ("Package", "Version", "Filename", "Size", "SHA256") if key not in fields]
    if missing:
        raise MalformedIndexError(f"a package stanza lacks {', '.join(missing)}: {block.splitlines()[0][:80]}")
    if not (_NAME.fullmatch(fields["Package"]) and _SHA256.fullmatch(fields["SHA256"]) and fields["Size"].isdigit()):
        raise MalformedIndexError(
            f"a package stanza has a malformed name, size or sha256: {block.splitlines()[0][:80]}"
        )
    return Package(fields)


def parse_fields(block: str) -> dict[str, str]:
    """`Key: value` lines; a line that starts with a space continues the value before it."""
    fields: dict[str, str] = {}
    key = ""
    for line in block.splitlines():
        if line[:1] in {" ", "\t"} and key:
            fields[key] += "\n" + line
        elif ":" in line:
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    return fields


def relations(field: str) -> tuple[Alternatives, ...]:
    """`a, b (>= 2) | c` -> ((a,), (b >= 2, c))"""
    return tuple(tuple(map(_relation, group.split("|"))) for group in field.split(",") if group.strip())


def _relation(text: str) -> Relation:
    match = _RELATION.fullmatch(text)
    if match is None:
        raise MalformedIndexError(f"cannot read the package relation {text.strip()!r}")
    return Relation(match["name"], match["op"], match["version"])


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
