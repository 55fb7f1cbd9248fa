"""Contents of a lab package: links to the host's programs, and files from content/."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.termux.catalog import HERE, Package
from orchestrator.lab.termux.layout import TermuxLayout
from orchestrator.lab.termux.shims import compile_shim

DIST_PACKAGES = Path("usr/lib/python3/dist-packages")


@dataclass(frozen=True, order=True)
class Entry:
    """A file or symlink of a package. The path is relative to $PREFIX."""

    path: str
    data: bytes = b""
    link: str | None = None

    @property
    def mode(self) -> int:
        return 0o755 if self.data.startswith((b"#!", b"\x7fELF")) else 0o644


def package_entries(package: Package, layout: TermuxLayout) -> list[Entry]:
    found = [
        *_programs(package, layout),
        *_links(package, layout),
        *_modules(package, layout),
        *_shims(package, layout),
        *_files(package, layout),
        _notice(package),
    ]
    return sorted(found)


def installed_kib(entries: list[Entry]) -> int:
    return sum(len(entry.data) for entry in entries) // 1024 + 1


def maintainer_scripts(package: Package, layout: TermuxLayout) -> dict[str, bytes]:
    """postinst and other maintainer scripts, by name."""
    directory = HERE / "content" / package.name / "DEBIAN"
    return {file.name: _render(file, package, layout) for file in sorted(directory.glob("*"))}


def _programs(package: Package, layout: TermuxLayout) -> Iterator[Entry]:
    names_on_host = {**{name: name for name in package.programs}, **package.renamed_programs}
    for name, host_name in names_on_host.items():
        if package.optional and layout.host.find(host_name) is None:
            continue
        yield _program(f"bin/{layout.render(name)}", host_name, layout)


def _program(path: str, name: str, layout: TermuxLayout) -> Entry:
    """A symlink to a host program. A shell script is copied with a corrected shebang, as termux-fix-shebang does."""
    target = layout.host.program(name)
    script = _shell_script(layout.host.locate(name))
    if script is None:
        return Entry(path, link=target)
    return Entry(path, data=f"#!{layout.interpreter('sh')}\n".encode() + script)


def _shell_script(program: Path | None) -> bytes | None:
    """The program without its first line if it is a shell script, otherwise None."""
    if program is None:
        return None
    with program.open("rb") as file:
        first = file.readline(200)
        is_shell_script = first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"/sh -"))
        return file.read() if is_shell_script else None


def _links(package: Package, layout: TermuxLayout) -> Iterator[Entry]:
    for path, target in package.links.items():
        yield Entry(layout.render(path), link=layout.render(target))


def _modules(package: Package, layout: TermuxLayout) -> Iterator[Entry]:
    """Python modules with the metadata that pip needs to list them."""
    here = layout.host.root / DIST_PACKAGES
    for module in package.modules:
        for source in (here / module, *here.glob(f"{module}-*-info")):
            yield Entry(f"{layout.site_packages}/{source.name}", link=f"/{DIST_PACKAGES}/{source.name}")


def _shims(package: Package, layout: TermuxLayout) -> Iterator[Entry]:
    for path, sources in package.shims.items():
        yield Entry(path, data=compile_shim(sources, layout.host))


def _files(package: Package, layout: TermuxLayout) -> Iterator[Entry]:
    root = HERE / "content" / package.name
    for file in sorted(root.rglob("*")):
        relative = file.relative_to(root)
        if file.is_file() and relative.parts[0] != "DEBIAN":
            yield Entry(str(relative), data=_render(file, package, layout))


def _render(file: Path, package: Package, layout: TermuxLayout) -> bytes:
    return layout.render(file.read_text(), package.version).encode()


def _notice(package: Package) -> Entry:
    text = f"{package.name} {package.version}: a replacement made by the lab, not the Termux build.\n"
    return Entry(f"share/doc/{package.name}/README.lab", data=text.encode())
