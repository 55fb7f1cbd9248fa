"""Files as our programs use them: written beside their place and renamed, never linked."""

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
from phone_agent.contract.assumptions import Found, failed, judged, ok, unknown

REPLACEMENTS = 20
VALUES = 20_000
PIECE = bytes(1 << 20)
MOST_MB, MOST_S = 128, 2.0
SPARE_MB = 500
USABLE_MBS = 20.0  # five seconds for ResNet-50's weights


def hard_links() -> Found:
    with _scratch() as folder:
        (folder / "one").touch()
        try:
            os.link(folder / "one", folder / "two")
        except AttributeError:
            return ok("this Python has no os.link", how="absent")
        except OSError as error:
            refused = error.errno in {errno.EACCES, errno.EPERM}
            return judged(refused, f"os.link: {error.strerror}", how="refused")
    return failed("os.link makes hard links", how="works")


def replacing() -> Found:
    """A reader beside the writer must never see part of a checkpoint."""
    import numpy as np

    from phone_agent.contract import safetensors

    with _scratch() as folder:
        path, end, torn = folder / "checkpoint", threading.Event(), list[str]()

        def write(number: int) -> None:
            safetensors.write(path, {"weights": np.full(VALUES, number, np.float32)})

        def read() -> None:
            while not end.is_set():
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
            end.set()
            reader.join()
        left = sorted(each.name for each in folder.iterdir())
    told = f"{REPLACEMENTS} checkpoints renamed over each other, seen in part: {len(torn)}"
    return judged(not torn and left == ["checkpoint"], told, torn=torn[:3], left=left)


def speed() -> Found:
    with _scratch() as folder:
        free_mb = shutil.disk_usage(folder).free // 1_000_000
        if free_mb < MOST_MB + SPARE_MB:
            return unknown(f"only {free_mb} MB free: nothing was written")
        started, written = time.monotonic(), 0
        with (folder / "file").open("wb") as file:
            while written < MOST_MB and time.monotonic() - started < MOST_S:
                file.write(PIECE)
                written += 1
            file.flush()
            os.fsync(file.fileno())
        rate = written * len(PIECE) / 1e6 / (time.monotonic() - started)
    return judged(rate >= USABLE_MBS, f"writes {rate:.0f} MB/s, made safe", mb=written, mb_per_s=round(rate, 1))


@contextmanager
def _scratch() -> Iterator[Path]:
    root = layout.local(layout.ROOT)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="selftest-") as folder:
        yield Path(folder)
