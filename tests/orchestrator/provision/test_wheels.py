from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ClusterctlError
from orchestrator.provision.wheels import MPI4PY, PYOPENCL, WheelStore, require_portable

ABI = "cpython-314-android-24-arm64_v8a-openmpi-4.1.5-1"


def test_only_sources_and_pure_python_wheels_are_accepted(tmp_path: Path) -> None:
    for name in ("mpi4py-4.1.2.tar.gz", "setuptools-84.2.1-py3-none-any.whl"):
        (tmp_path / name).touch()
    assert len(require_portable(tmp_path)) == 2
    (tmp_path / "cython-3.3.1-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    with pytest.raises(ClusterctlError, match="manylinux"):
        require_portable(tmp_path)


def test_a_cached_wheel_is_found_unless_damaged(tmp_path: Path) -> None:
    store = WheelStore(tmp_path, tmp_path / "wheels", MPI4PY)
    assert store.find(ABI) is None
    kept = store.add(ABI, "p1-01", "mpi4py-4.1.2-x.whl", b"wheel")
    assert WheelStore(tmp_path, tmp_path / "wheels", MPI4PY).find(ABI) == kept
    assert WheelStore(tmp_path, tmp_path / "another cluster", MPI4PY).find(ABI) is None
    assert store.find("another") is None
    kept.path.write_bytes(b"damaged")
    assert store.find(ABI) is None


def test_the_version_is_pinned() -> None:
    assert MPI4PY.version.count(".") == PYOPENCL.version.count(".") == 2
