"""What is in a package: links to this computer's programs, and a few files of our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.termux.catalogue import HERE, Package
from orchestrator.lab.termux.layout import Layout
from orchestrator.lab.termux.shims import compiled

DIST_PACKAGES = Path("usr/lib/python3/dist-packages")


@dataclass(frozen=True, order=True)
class Entry:
    """One file or link of a package; the path is relative to $PREFIX."""

    path: str
    data: bytes = b""
    link: str | None = None

    @property
    def mode(self) -> int:
        return 0o755 if self.data.startswith((b"#!", b"\x7fELF")) else 0o644


def contents(package: Package, layout: Layout) -> list[Entry]:
    found = [
        *_borrowed(package, layout),
        *_links(package, layout),
        *_modules(package, layout),
        *_shims(package, layout),
        *_files(package, layout),
        _notice(package),
    ]
    return sorted(found)


def installed_kib(entries: list[Entry]) -> int:
    return sum(len(entry.data) for entry in entries) // 1024 + 1


def maintainer_scripts(package: Package, layout: Layout) -> dict[str, bytes]:
    """postinst and its like, by name."""
    directory = HERE / "content" / package.name / "DEBIAN"
    return {file.name: _filled(file, package, layout) for file in sorted(directory.glob("*"))}


def _borrowed(package: Package, layout: Layout) -> Iterator[Entry]:
    wanted = {**{name: name for name in package.programs}, **package.borrowed}
    for name, theirs in wanted.items():
        if package.optional and layout.host.find(theirs) is None:
            continue
        yield _program(f"bin/{layout.fill(name)}", theirs, layout)


def _program(path: str, name: str, layout: Layout) -> Entry:
    """A link to a host's program; a script is copied with a shell the phone has, as termux-fix-shebang would."""
    seen = layout.host.program(name)
    script = _shell_script(layout.host.locate(name))
    if script is None:
        return Entry(path, link=seen)
    return Entry(path, data=f"#!{layout.interpreter('sh')}\n".encode() + script)


def _shell_script(program: Path | None) -> bytes | None:
    """The program without its first line, if it is a shell script."""
    if program is None:
        return None
    with program.open("rb") as file:
        first = file.readline(200)
        is_script = first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"/sh -"))
        return file.read() if is_script else None


def _links(package: Package, layout: Layout) -> Iterator[Entry]:
    for path, target in package.links.items():
        yield Entry(layout.fill(path), link=layout.fill(target))


def _modules(package: Package, layout: Layout) -> Iterator[Entry]:
    """A Python module and the metadata that lets pip see it."""
    here = layout.host.root / DIST_PACKAGES
    for module in package.modules:
        for source in (here / module, *here.glob(f"{module}-*-info")):
            yield Entry(f"{layout.site_packages}/{source.name}", link=f"/{DIST_PACKAGES}/{source.name}")


def _shims(package: Package, layout: Layout) -> Iterator[Entry]:
    for path, sources in package.shims.items():
        yield Entry(path, data=compiled(sources, layout.host))


def _files(package: Package, layout: Layout) -> Iterator[Entry]:
    root = HERE / "content" / package.name
    for file in sorted(root.rglob("*")):
        relative = file.relative_to(root)
        if file.is_file() and relative.parts[0] != "DEBIAN":
            yield Entry(str(relative), data=_filled(file, package, layout))


def _filled(file: Path, package: Package, layout: Layout) -> bytes:
    return layout.fill(file.read_text(), package.version).encode()


def _notice(package: Package) -> Entry:
    text = f"{package.name} {package.version}: a stand-in made by the lab. Not Termux's build.\n"
    return Entry(f"share/doc/{package.name}/README.lab", data=text.encode())
