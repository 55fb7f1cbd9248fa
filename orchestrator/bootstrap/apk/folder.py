"""`--apks DIR`: Termux, Termux:API and Termux:Boot, with SHA256SUMS. All problems are reported together."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator import decompress
from orchestrator.bootstrap.apk import axml, signing
from orchestrator.errors import UsageError

TERMUX: Final = "com.termux"
API: Final = "com.termux.api"
BOOT: Final = "com.termux.boot"
NAMES: Final = {TERMUX: "Termux", API: "Termux:API", BOOT: "Termux:Boot"}

SUMS: Final = "SHA256SUMS"
_LINE: Final = re.compile(r"(?P<sum>[0-9a-fA-F]{64}) [ *](?:\./)?(?P<name>[^/]+)")
_MAX_APK_BYTES: Final = 512 * 2**20
_MAX_MANIFEST_BYTES: Final = 4 * 2**20
_LIBRARY: Final = re.compile(r"lib/([^/]+)/[^/]+\.so")
_ACTIVITY: Final = re.compile(r"[A-Za-z0-9_.$]+")
_SOURCE: Final = "the …github-debug… APKs of the GitHub releases of termux-app, termux-api and termux-boot"


@dataclass(frozen=True)
class Apk:
    path: Path
    sha256: str
    package: str
    version: str
    certificate: str  # sha256
    debuggable: bool
    shared_user: str
    abis: frozenset[str]  # empty: no native code, runs on all
    activity: str | None  # its launcher activity

    @property
    def name(self) -> str:
        return NAMES[self.package]

    @property
    def component(self) -> str:
        return f"{self.package}/{self.activity}"


@dataclass(frozen=True)
class Apks:
    """One APK of each app, all with the same signer."""

    termux: Apk
    api: Apk
    boot: Apk

    def __iter__(self) -> Iterator[Apk]:
        return iter((self.termux, self.api, self.boot))

    @property
    def size(self) -> int:
        return sum(apk.path.stat().st_size for apk in self)


def read_apks(directory: Path) -> Apks:
    """Raises UsageError with all problems."""
    sums = _read_sums(directory)
    problems: list[str] = []
    found: dict[str, list[Apk]] = {}
    for path in sorted(directory.glob("*.apk")):
        try:
            apk = _read(path, sums)
        except ValueError as error:
            problems.append(f"{path.name}: {error}")
        else:
            found.setdefault(apk.package, []).append(apk)
    problems += [f"{name}: listed in {SUMS}, but missing" for name in sums if not (directory / name).exists()]
    problems += _incomplete(found) if not problems else []
    problems += _unusable([apk for group in found.values() for apk in group]) if not problems else []
    if problems:
        raise UsageError("\n".join(f"--apks {directory}: {problem}" for problem in problems), remedy=f"use {_SOURCE}")
    return Apks(*(found[package][0] for package in (TERMUX, API, BOOT)))


def _read_sums(directory: Path) -> dict[str, str]:
    if not directory.is_dir():
        raise UsageError(f"--apks {directory}: no such directory", remedy=f"create it with {_SOURCE}")
    file = directory / SUMS
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--apks {directory}: {SUMS} cannot be read: {error}",
            remedy=f"write the sha256 sums of the release page into {file}, one line per file as sha256sum prints them",
        ) from error
    matches = [(number, _LINE.fullmatch(line)) for number, line in enumerate(lines, start=1)]
    if bad := [number for number, match in matches if match is None]:
        raise UsageError(
            f"{file}:{bad[0]}: expected 64 hex digits, two blanks and a file name, as sha256sum prints them"
        )
    return {match["name"]: match["sum"].lower() for _, match in matches if match}


def _read(path: Path, sums: dict[str, str]) -> Apk:
    if path.stat().st_size > _MAX_APK_BYTES:
        raise ValueError("too large for a Termux APK")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if path.name not in sums:
        raise ValueError(f"not listed in {SUMS}; its sha256 is {digest}")
    if sums[path.name] != digest:
        raise ValueError(f"its sha256 is {digest}, but {SUMS} lists {sums[path.name]}: download it again")
    manifest, libraries = _contents(path)
    package = manifest.text("package")
    if package not in NAMES:
        raise ValueError(f"is {package or 'nameless'!r}, not one of {', '.join(NAMES.values())}: remove it")
    (application,) = list(manifest.find("application")) or [axml.Element("application", {})]
    return Apk(
        path=path.absolute(),
        sha256=digest,
        package=package,
        version=manifest.text("versionName") or manifest.text("versionCode"),
        certificate=signing.certificate(data),
        debuggable=bool(application.attributes.get("debuggable")),
        shared_user=manifest.text("sharedUserId"),
        abis=frozenset(libraries),
        activity=_main_activity(application, package),
    )


def _contents(path: Path) -> tuple[axml.Element, set[str]]:
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("AndroidManifest.xml")
            if info.file_size > _MAX_MANIFEST_BYTES:
                raise ValueError("its AndroidManifest.xml is too large")
            manifest = axml.parse(archive.read(info))
            libraries = {match[1] for name in archive.namelist() if (match := _LIBRARY.fullmatch(name))}
    except (zipfile.BadZipFile, KeyError, RuntimeError, *decompress.ERRORS) as error:  # RuntimeError: encrypted
        raise ValueError(f"not an APK: {error}") from error
    return manifest, libraries


def _main_activity(application: axml.Element, package: str) -> str | None:
    for activity in application.find("activity"):
        actions = {action.text("name") for action in activity.find("intent-filter", "action")}
        name = activity.text("name")
        if "android.intent.action.MAIN" in actions and _ACTIVITY.fullmatch(name):
            return package + name if name.startswith(".") else name
    return None


def _incomplete(found: dict[str, list[Apk]]) -> list[str]:
    missing = [f"no APK of {name} ({package})" for package, name in NAMES.items() if package not in found]
    several = [
        f"several APKs of {NAMES[package]}: {', '.join(apk.path.name for apk in group)}; keep one"
        for package, group in found.items()
        if len(group) > 1
    ]
    return missing + several


def _unusable(apks: list[Apk]) -> list[str]:
    problems = []
    if len({apk.certificate for apk in apks}) > 1:
        signers = "; ".join(f"{apk.name} is signed by {signing.source(apk.certificate)}" for apk in apks)
        problems.append(f"Android does not let apps of different signers share data: {signers}")
    for apk in apks:
        if apk.shared_user != TERMUX:
            problems.append(f"{apk.path.name}: does not share the user id of Termux, like builds of the Play Store")
        if apk.activity is None:
            problems.append(f"{apk.path.name}: has no launcher activity")
    termux = next(apk for apk in apks if apk.package == TERMUX)
    if not termux.debuggable:
        signer = signing.source(termux.certificate)
        problems.append(f"{termux.path.name}: not debuggable (signed by {signer}), so run-as cannot install a key")
    return problems
