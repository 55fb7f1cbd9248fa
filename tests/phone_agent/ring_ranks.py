"""Run under mpirun by test_mpi.py: every rank checks its sums, and rank 0 prints the number of checks."""

from __future__ import annotations

import sys

import numpy as np

from phone_agent.comm.factory import FACTORIES, make_collective
from phone_agent.comm.ring import MANY_PIECES, MAX_PIECE_BYTES
from phone_agent.comm.wire import wire_format
from phone_agent.comm.world import open_world

LENGTHS = (0, 1, 2, 3, 5, 17, 1000, 600_003)
LONG = (
    2 * MANY_PIECES * MAX_PIECE_BYTES // 4 + 3
)  # for two ranks: long enough for pieces that MPI announces (rendezvous)
# Integers this small survive rounding.
CASES = [(algorithm, "fp32") for algorithm in FACTORIES] + [("ring", "fp16"), ("hierarchical", "fp16")]


def main() -> None:
    world = open_world()
    switches = ["odd" if rank % 2 else "even" for rank in range(world.size)]
    checked = 0
    for algorithm, wire in CASES:
        summed = make_collective(algorithm, world, wire_format(wire), switches)
        for length in LENGTHS:
            buffer = (np.arange(length) % 100 + world.rank).astype(np.float32)
            summed.allreduce(buffer)
            np.testing.assert_array_equal(buffer, np.arange(length) % 100 * world.size + sum(range(world.size)))
            checked += 1
    for wire in ("fp32", "fp16") if world.size == 2 else ():
        buffer = np.full(LONG if wire == "fp32" else 2 * LONG, 1.0 + world.rank, np.float32)
        make_collective("ring", world, wire_format(wire)).allreduce(buffer)
        assert buffer.min() == buffer.max() == 3.0
    rows = world.allgather(np.array([world.rank, checked], np.float64))
    assert rows[:, 0].tolist() == list(range(world.size))
    if world.rank == 0:
        sys.stdout.write(f"{world.size} {int(rows[:, 1].sum())}\n")


if __name__ == "__main__":
    main()
