"""Feed hostile inputs to everything that reads what phones send or what files from elsewhere contain.

    python -m tests.security.fuzzer --inputs 1000000 --seed 1

prints how many inputs each boundary survived, the slowest input, and by how much the memory grew. An input that raises
anything but the boundary's own errors is saved and ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.security.boundaries import BOUNDARIES, Boundary
from tests.security.mutator import Mutator


@dataclass
class Fuzzed:
    """What happened at one boundary."""

    boundary: Boundary
    inputs: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    grown_bytes: int = 0


class SurvivalError(AssertionError):
    """An input was not survived; it is in the message."""


def fuzz(boundary: Boundary, inputs: int, seed: str, directory: Path) -> Fuzzed:
    found, mutator = Fuzzed(boundary), Mutator(boundary.corpus, f"{seed} {boundary.name}")
    for good in boundary.corpus:  # what a good phone sends is accepted; and everything is imported
        boundary.read(good, directory)
    before = peak_memory()
    for _ in range(inputs):
        hostile = mutator.mutate()
        started = time.process_time()  # other programs do not count
        try:
            boundary.read(hostile, directory)
        except boundary.errors:
            pass
        except Exception as error:
            path = directory / f"not-survived-{boundary.name.replace(' ', '-')}"
            path.write_bytes(hostile)
            raise SurvivalError(f"{boundary.name}: {type(error).__name__}: {error}; the input is in {path}") from error
        took = time.process_time() - started
        found.inputs += 1
        found.seconds += took
        found.slowest_s = max(found.slowest_s, took)
    found.grown_bytes = peak_memory() - before
    return found


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def shares(boundaries: Iterable[Boundary], inputs: int) -> dict[Boundary, int]:
    """More inputs for boundaries that read quickly."""
    weights = {each: each.weight for each in boundaries}
    return {each: max(1, inputs * weight // sum(weights.values())) for each, weight in weights.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="in total (default: 100000)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", help="name of a boundary")
    arguments = parser.parse_args()
    chosen = [each for each in BOUNDARIES if arguments.only in {None, each.name}]
    directory = Path(tempfile.mkdtemp(prefix="clusterctl-fuzz-"))
    total, started, failed = 0, time.monotonic(), False
    for boundary, inputs in shares(chosen, arguments.inputs).items():
        try:
            found = fuzz(boundary, inputs, arguments.seed, directory)
        except SurvivalError as error:
            traceback.print_exception(error.__cause__)
            sys.stdout.write(f"NOT SURVIVED  {error}\n")
            failed = True
            continue
        total += found.inputs
        sys.stdout.write(
            f"{boundary.name:<28} {found.inputs:>9,} inputs  {1e6 * found.seconds / found.inputs:>7,.0f} µs each  "
            f"slowest {1e3 * found.slowest_s:>7,.1f} ms  memory +{found.grown_bytes >> 20} MiB\n"
        )
        sys.stdout.flush()
    sys.stdout.write(
        f"{total:,} inputs in {time.monotonic() - started:,.0f} s; peak memory {peak_memory() >> 20} MiB\n"
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
