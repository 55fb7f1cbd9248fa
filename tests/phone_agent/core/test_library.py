"""Finding and loading the core, and the errors when that fails."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from phone_agent.core import build, library
from phone_agent.core.library import CoreError, isa_index


def test_library_for_another_processor_is_refused() -> None:
    foreign = build.AARCH64_ANDROID if build.host_target() is build.X86_64 else build.X86_64
    with pytest.raises(CoreError, match=r"is for \w+ processors, this is \w+: provision"):
        library.load(build.cached(foreign))


def test_non_library_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / build.LIBRARY
    path.write_text("not a library")
    with pytest.raises(CoreError, match="no known processors"):
        library.load(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match="No such file"):
        library.load(tmp_path / build.LIBRARY)


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.9, 1.0])
def test_truncated_library_is_refused(tmp_path: Path, share: float) -> None:
    """It is never opened: the loader maps what the headers declare, and crashes where the file ends."""
    whole = build.cached(build.host_target()).read_bytes()
    path = tmp_path / build.LIBRARY
    left = int(len(whole) * share) - 1
    path.write_bytes(whole[:left])
    with pytest.raises(CoreError, match=rf"is truncated: {left} of \d+ bytes: provision"):
        library.load(path)


def test_damaged_library_is_refused(tmp_path: Path) -> None:
    whole = bytearray(build.cached(build.host_target()).read_bytes())
    whole[32:40] = (1 << 40).to_bytes(8, "little")  # offset of the program headers
    path = tmp_path / build.LIBRARY
    path.write_bytes(whole)
    with pytest.raises(CoreError, match=r"cannot be loaded: .*: provision"):
        library.load(path)


def test_other_libraries_are_refused() -> None:
    with Path("/proc/self/maps").open() as maps:
        libc = next(line.split()[-1] for line in maps if "libc.so" in line or "libc-" in line)
    with pytest.raises(CoreError, match=r"is not a core: .*core_abi"):
        library.load(Path(libc))


def test_core_with_another_abi_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text('__attribute__((visibility("default"))) int core_abi(void) { return 999; }\n')
    other = tmp_path / "libother.so"
    build._zig("cc", "-target", build.host_target().triple, *build._LINK, str(source), "-o", str(other))
    with pytest.raises(CoreError, match="has ABI version 999, this agent"):
        library.load(other)


def test_missing_library_on_a_phone_suggests_provisioning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "SOURCES", tmp_path / "no sources on a phone")
    monkeypatch.setattr(library, "SHIPPED", tmp_path / "lib" / build.LIBRARY)
    library.library.cache_clear()
    try:
        with pytest.raises(CoreError, match=r"libcore\.so is missing: .*clusterctl provision"):
            library.library()
    finally:
        library.library.cache_clear()


def test_unknown_isa_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CoreError, match="no 'sse9' kernels; it has: "):
        isa_index(library.library(), "sse9")
    monkeypatch.setenv("CLUSTERCTL_ISA", "mmx")
    with pytest.raises(CoreError, match="no 'mmx' kernels"):
        isa_index(library.library(), None)


class _OldProcessor(SimpleNamespace):
    """A stand-in for a core on a processor that lacks its best instruction set."""

    def core_isa_count(self) -> int:
        return 2

    def core_isa_name(self, index: int) -> bytes:
        return (b"best", b"sse2")[index]

    def core_isa_supported(self, index: int) -> int:
        return index == 1


def test_unsupported_isa_is_refused() -> None:
    core = cast("ctypes.CDLL", _OldProcessor())
    with pytest.raises(CoreError, match="cannot run the core's best kernels; it can run: sse2"):
        isa_index(core, "best")
    assert isa_index(core, None) == 1


def test_environment_variable_selects_the_isa(monkeypatch: pytest.MonkeyPatch) -> None:
    last = library.isas(library.library())[-1]
    monkeypatch.setenv("CLUSTERCTL_ISA", last)
    assert isa_index(library.library(), None) == library.library().core_isa_count() - 1
