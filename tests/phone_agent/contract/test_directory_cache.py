"""Old builds go, the newest and those in use stay, and nothing that is not ours is touched."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phone_agent import bind_shim
from phone_agent.contract import directory_cache
from phone_agent.core import build

DAY = 24 * 3600.0
SORT = "core-x86_64-linux"


def made(cache_dir: Path, name: str, age_s: float) -> Path:
    place = cache_dir / name
    place.mkdir(parents=True)
    (place / "libcore.so").write_text(name)
    os.utime(place, (time.time() - age_s,) * 2)
    return place


def several(cache_dir: Path, count: int, age_s: float = 2 * DAY, sort: str = SORT) -> list[Path]:
    """The first is the newest."""
    return [made(cache_dir, f"{sort}-{number:016x}", age_s + number) for number in range(count)]


def test_the_newest_stay_and_so_does_what_was_used_today(tmp_path: Path) -> None:
    new = several(tmp_path, 7)
    assert directory_cache.use(new[6])
    directory_cache.prune(new[0])
    assert sorted(path.name for path in tmp_path.glob("*-*")) == sorted(path.name for path in (*new[:3], new[6]))
    today = several(tmp_path / "other", 9, age_s=60)
    directory_cache.prune(today[0])
    assert all(path.is_dir() for path in today)


def test_what_was_just_made_stays_however_old_it_looks(tmp_path: Path) -> None:
    oldest = several(tmp_path, 8)[-1]
    directory_cache.prune(oldest)
    assert oldest.is_dir()
    assert len(list(tmp_path.glob(f"{SORT}-*"))) == directory_cache.NEWEST + 1


@pytest.mark.parametrize(
    "name",
    [
        "core-aarch64-android-0000000000000099",
        "core-x86_64-linux-notafingerprint",
        "core-x86_64-linux-00000000000000991",
        "my-core-x86_64-linux-0000000000000099",
        "wheels",
        ".gone-core-aarch64-linux-0000000000000099",
    ],
)
def test_nothing_of_another_name_is_touched(tmp_path: Path, name: str) -> None:
    other = made(tmp_path, name, 1000 * DAY)
    directory_cache.prune(several(tmp_path, 9)[0])
    assert (other / "libcore.so").read_text() == name


def test_neither_files_nor_what_links_point_to_are_touched(tmp_path: Path) -> None:
    places = several(tmp_path / "directory_cache", 9)
    elsewhere = made(tmp_path, "elsewhere", 1000 * DAY)
    (tmp_path / "directory_cache" / f"{SORT}-{98:016x}").symlink_to(elsewhere)
    (tmp_path / "directory_cache" / f"{SORT}-{99:016x}").write_text("a file")
    directory_cache.prune(places[0])
    assert (elsewhere / "libcore.so").is_file()
    assert (tmp_path / "directory_cache" / f"{SORT}-{98:016x}").is_symlink()
    assert (tmp_path / "directory_cache" / f"{SORT}-{99:016x}").is_file()


def test_what_somebody_left_half_removed_goes_and_a_lock_goes_with_what_it_locked(tmp_path: Path) -> None:
    made(tmp_path, f".gone-{SORT}-{99:016x}", 0)
    places = several(tmp_path, 6)
    for place in places:
        place.with_name(f"{place.name}.lock").touch()
    directory_cache.prune(places[0])
    names = {path.name for path in tmp_path.iterdir()} - {".prune.lock"}
    assert names == {f"{place.name}{end}" for place in places[: directory_cache.NEWEST] for end in ("", ".lock")}


_LOOKS = """
import sys
from pathlib import Path
from phone_agent.contract import directory_cache
place = Path(sys.argv[1])
print("looking", flush=True)
assert directory_cache.use(place), "gone before it was used"
sys.stdin.readline()
print((place / "libcore.so").read_text(), flush=True)
"""


def test_another_process_that_looks_for_one_has_it(tmp_path: Path) -> None:
    """It asks while somebody else is about to remove: it waits its turn, and what it found stays."""
    places = several(tmp_path, 9)
    with (tmp_path / ".prune.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = subprocess.Popen(
            [sys.executable, "-c", _LOOKS, str(places[8])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        assert other.stdout.readline() == "looking\n"
        directory_cache.prune(places[0])  # somebody is at it already
        assert all(place.is_dir() for place in places)
    while time.time() - places[8].stat().st_mtime > DAY:
        time.sleep(0.01)
    directory_cache.prune(places[0])
    assert not places[7].exists()
    assert other.communicate("go on\n", timeout=60)[0] == f"{places[8].name}\n"


def test_a_cache_that_cannot_be_written_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".prune.lock").mkdir()
    place = several(tmp_path, 9)[8]
    assert directory_cache.use(place)
    directory_cache.prune(place)
    assert len(list(tmp_path.glob(f"{SORT}-*"))) == 9
    assert not directory_cache.use(tmp_path / "nowhere" / place.name)


def test_who_builds_anew_prunes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERCTL_CACHE", str(tmp_path))
    target = build.host_target()
    several(tmp_path, 9, sort=f"core-{target.name}")
    several(tmp_path, 9, sort=f"bind-shim-{target.name}")

    def write(_target: build.Target, *places: Path) -> Path:
        library = places[-1] / build.LIBRARY if len(places) == 1 else places[-1]
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_text("built")
        return library

    monkeypatch.setattr(build, "build", write)
    monkeypatch.setattr(build, "build_library", write)
    for cached, sort in ((build.cached, "core"), (bind_shim.cached, "bind-shim")):
        assert cached(target).read_text() == "built"
        assert len(list(tmp_path.glob(f"{sort}-{target.name}-*"))) == directory_cache.NEWEST
