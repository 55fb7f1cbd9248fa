"""Does a dataset come to four phones of a switch as fast as to one? From phone to phone, each byte leaves here once.

    python -m benchmarks.data_push [--mb 100] [--phones 4] [--rate 50mbit]

On a lab of its own. The links are slow on purpose: on faster ones the limit is this computer, which is all the phones.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.labs import clusterctl, lab
from orchestrator.plan.link_rate import bytes_per_second

CLASSES = [f"class{number}" for number in range(10)]
RECORD = 1 + 32 * 32 * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="50mbit")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, lab(arguments.phones, rate=arguments.rate):
        make_cifar(Path(scratch), arguments.mb * 1_000_000 // RECORD)
        clusterctl("data", "add", "noise", scratch)
        alone = push("--limit", "p1-01")
        clusterctl("data", "remove", "noise", "--from-phones")
        clusterctl("data", "add", "noise", scratch)
        together = push()
    limit = alone["sent_bytes"] / bytes_per_second(arguments.rate)
    count = arguments.phones
    print(f"{alone['sent_bytes'] / 1e6:.0f} MB over links of {arguments.rate}: {limit:.1f} s at line rate")
    print(f"to one phone      {alone['seconds']:6.1f} s")
    print(f"to {count} phones       {together['seconds']:6.1f} s   {together['seconds'] / alone['seconds']:.2f}x")
    sent, got = together["sent_bytes"], sum(phone["bytes"] for phone in together["phones"])
    print(f"left this computer {sent / 1e6:.0f} MB, arrived on phones {got / 1e6:.0f} MB: {got / sent:.1f}x")
    print(f"one after the other over one such link: {count * limit:.1f} s at best")


def make_cifar(directory: Path, samples: int) -> None:
    """Noise in CIFAR-10's binary layout."""
    numbers = np.random.default_rng(0)
    batches = {f"data_batch_{number}.bin": samples // 5 for number in range(1, 6)}
    for name, count in {**batches, "test_batch.bin": 10}.items():
        records = numbers.integers(0, 256, (count, RECORD), np.uint8)
        records[:, 0] %= 10
        (directory / name).write_bytes(records.tobytes())
    (directory / "batches.meta.txt").write_text("\n".join(CLASSES))


def push(*flags: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(clusterctl("data", "push", "noise", "--replicate-data", *flags, "--json"))
    return found


if __name__ == "__main__":
    main()
