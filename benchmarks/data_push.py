"""Dataset distribution: pushing to four phones on one switch should take as long as pushing to one.

Phones pass the data on to each other, so each byte leaves this computer once.

    python -m benchmarks.data_push [--mb 100] [--phones 4] [--rate 50mbit]

Starts its own lab. The links are slow on purpose: with faster links, the cores of this computer, which run all phones,
would be the bottleneck.
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
        one_phone = push("--limit", "p1-01")
        clusterctl("data", "remove", "noise", "--from-phones")
        clusterctl("data", "add", "noise", scratch)
        all_phones = push()
    limit = one_phone["sent_bytes"] / bytes_per_second(arguments.rate)
    count = arguments.phones
    print(f"{one_phone['sent_bytes'] / 1e6:.0f} MB over links of {arguments.rate}: {limit:.1f} s at line rate")
    print(f"to one phone      {one_phone['seconds']:6.1f} s")
    print(
        f"to {count} phones       {all_phones['seconds']:6.1f} s   {all_phones['seconds'] / one_phone['seconds']:.2f}x"
    )
    sent, got = all_phones["sent_bytes"], sum(phone["bytes"] for phone in all_phones["phones"])
    print(f"sent by this computer {sent / 1e6:.0f} MB, received by phones {got / 1e6:.0f} MB: {got / sent:.1f}x")
    print(f"one phone after another over one such link: at least {count * limit:.1f} s")


def make_cifar(directory: Path, samples: int) -> None:
    """Write noise in the binary layout of CIFAR-10."""
    generator = np.random.default_rng(0)
    batches = {f"data_batch_{number}.bin": samples // 5 for number in range(1, 6)}
    for name, count in {**batches, "test_batch.bin": 10}.items():
        records = generator.integers(0, 256, (count, RECORD), np.uint8)
        records[:, 0] %= 10
        (directory / name).write_bytes(records.tobytes())
    (directory / "batches.meta.txt").write_text("\n".join(CLASSES))


def push(*flags: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(clusterctl("data", "push", "noise", "--replicate-data", *flags, "--json"))
    return report


if __name__ == "__main__":
    main()
