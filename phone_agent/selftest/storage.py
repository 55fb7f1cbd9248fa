"""Checks of storage, used as our programs use it: files are written under another name and renamed, never linked."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.assumptions import CheckResult, failed, ok, ok_if, unknown

REPLACEMENTS = 20
VALUES = 20_000
CHUNK = bytes(1 << 20)
MAX_MB, MAX_S = 128, 2.0
SPARE_MB = 500
MIN_MBS = 20.0  # five seconds for the weights of ResNet-50


def hard_links() -> CheckResult:
    with _scratch() as folder:
        (folder / "one").touch()
        try:
            os.link(folder / "one", folder / "two")
        except AttributeError:
            return ok("this Python has no os.link", how="absent")
        except OSError as error:
            refused = error.errno in {errno.EACCES, errno.EPERM}
            return ok_if(refused, f"os.link: {error.strerror}", how="refused")
    return failed("os.link makes hard links", how="works")


def atomic_rename() -> CheckResult:
    """A concurrent reader must never see a partial checkpoint."""
    import numpy as np

    from phone_agent.contract import safetensors

    with _scratch() as folder:
        path, done, torn = folder / "checkpoint", threading.Event(), list[str]()

        def write(number: int) -> None:
            safetensors.write(path, {"weights": np.full(VALUES, number, np.float32)})

        def read() -> None:
            while not done.is_set():
                values = safetensors.read(path).tensors["weights"]
                if values.size != VALUES or values.min() != values.max():
                    torn.append(f"{values.size} values, {values.min()} to {values.max()}")

        write(0)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1, REPLACEMENTS):
                write(number)
        finally:
            done.set()
            reader.join()
        left = sorted(each.name for each in folder.iterdir())
    detail = f"{REPLACEMENTS} checkpoints renamed over each other, {len(torn)} partial reads"
    return ok_if(not torn and left == ["checkpoint"], detail, torn=torn[:3], left=left)


def speed() -> CheckResult:
    with _scratch() as folder:
        free_mb = shutil.disk_usage(folder).free // 1_000_000
        if free_mb < MAX_MB + SPARE_MB:
            return unknown(f"only {free_mb} MB free: write speed not measured")
        started, written = time.monotonic(), 0
        with (folder / "file").open("wb") as file:
            while written < MAX_MB and time.monotonic() - started < MAX_S:
                file.write(CHUNK)
                written += 1
            file.flush()
            os.fsync(file.fileno())
        rate = written * len(CHUNK) / 1e6 / (time.monotonic() - started)
    return ok_if(rate >= MIN_MBS, f"writes {rate:.0f} MB/s, including fsync", mb=written, mb_per_s=round(rate, 1))


@contextmanager
def _scratch() -> Iterator[Path]:
    root = layout.local(layout.ROOT)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="selftest-") as folder:
        yield Path(folder)
