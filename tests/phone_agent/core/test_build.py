"""The built library: the one for phones must load on any Android, without any other library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import paths
from phone_agent.core import build
from tests.phone_agent.core import elf

AARCH64 = 183
EXECUTABLE, WRITABLE = 1, 2
PAGE = 16 * 1024  # since Android 15; smaller pages divide it


@pytest.fixture(scope="module")
def for_phones() -> elf.Elf:
    return elf.Elf(build.cached(build.AARCH64_ANDROID))


def test_phone_library_needs_no_other_library(for_phones: elf.Elf) -> None:
    assert for_phones.machine == AARCH64
    unwanted = {elf.NEEDED, elf.RELATIVE_PATH, elf.RUN_PATH, elf.VERSIONS_NEEDED}
    assert not unwanted & set(for_phones.dynamic_tags())
    assert b"GLIBC" not in build.cached(build.AARCH64_ANDROID).read_bytes()


def test_phone_library_has_no_undefined_symbol_and_exports_only_its_own(for_phones: elf.Elf) -> None:
    symbols = for_phones.symbols()
    assert [symbol.name for symbol in symbols if not symbol.is_defined] == []
    assert {symbol.name for symbol in symbols if not symbol.name.startswith("core_")} == set()
    assert "core_pool_run" in {symbol.name for symbol in symbols}


def test_phone_library_uses_only_basic_linker_features(for_phones: elf.Elf) -> None:
    tags = set(for_phones.dynamic_tags())
    assert {elf.HASH, elf.GNU_HASH} <= tags
    assert not {elf.TEXTREL, elf.RELR, elf.INIT, elf.INIT_ARRAY} & tags  # RELR needs Android 9
    assert for_phones.relocations() == {elf.RELATIVE}
    assert elf.INTERPRETER not in {segment.kind for segment in for_phones.segments}


def test_phone_library_loads_with_large_pages_and_a_non_executable_stack(for_phones: elf.Elf) -> None:
    loads = [segment for segment in for_phones.segments if segment.kind == elf.LOAD]
    assert loads
    assert all(segment.alignment == PAGE for segment in loads)
    assert all(segment.address % PAGE == segment.offset % PAGE for segment in loads)
    assert not any(segment.flags & EXECUTABLE for segment in for_phones.segments if segment.kind == elf.STACK)
    assert not any(segment.flags & EXECUTABLE and segment.flags & WRITABLE for segment in loads)


def test_phone_library_shares_no_page_between_code_and_data(for_phones: elf.Elf) -> None:
    """Otherwise a 16 KiB page would need two sets of permissions."""
    loads = [segment for segment in for_phones.segments if segment.kind == elf.LOAD]
    pages = [set(range(each.address // PAGE, -(-(each.address + each.size) // PAGE))) for each in loads]
    assert sum(map(len, pages)) == len(set.union(*pages))


def test_phone_library_is_stripped(for_phones: elf.Elf) -> None:
    assert elf.SYMTAB not in for_phones.section_kinds()
    assert not [name for name in for_phones.section_names() if name.startswith((".debug", ".eh_frame", ".note"))]


@pytest.mark.parametrize("target", [build.AARCH64_ANDROID, build.host_target()], ids=lambda target: target.name)
def test_same_sources_give_the_same_bytes(target: build.Target, tmp_path: Path) -> None:
    first, second = build.build(target, tmp_path / "one"), build.build(target, tmp_path / "another, with a space")
    assert first.read_bytes() == second.read_bytes() == build.cached(target).read_bytes()


def test_compiler_errors_are_shown(tmp_path: Path) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int f(void) { return missing; }\n")
    with pytest.raises(build.BuildError, match="undeclared identifier 'missing'"):
        build.build_program(build.host_target(), broken, tmp_path / "program")


def test_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    with pytest.raises(build.BuildError, match="pip install ziglang"):
        build.build(build.host_target(), tmp_path)


def test_unknown_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"machine": "riscv64"}))
    with pytest.raises(build.BuildError, match="riscv64"):
        build.host_target()


@pytest.mark.parametrize("environment", [{}, {"XDG_CACHE_HOME": "/x"}, {"CLUSTERCTL_CACHE": "~/y"}])
def test_cache_directory_is_the_hosts(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "CLUSTERCTL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert build.cache_dir() == paths.cache_dir()


def test_smoke_test_prints_the_supported_isas() -> None:
    done = subprocess.run([sys.executable, "-m", "phone_agent.core"], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(("sse2", "neon"))


def test_agent_never_imports_the_compiler() -> None:
    """It runs as a separate program, and phones have none."""
    for source in build.SOURCES.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("ziglang") for name in names), source
