"""One rank of PyTorch allreduce over gloo, in the network namespace of a phone (see peers.py)."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.peers import serve
from phone_agent.comm.bench import SumPattern


def start(store: str, ranks: int, rank: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{store}", world_size=ranks, rank=rank)
    return {}


def sums(megabytes: float, count: int) -> dict[str, Any]:
    """Seconds of each allreduce on this rank, started after a barrier.

    The procedure matches `clusterctl bench allreduce`: one warm-up, and the same idle time between sums.
    """
    buffer = torch.zeros(round(megabytes * 1e6 / 4))
    ranks, rank = dist.get_world_size(), dist.get_rank()
    numbers, view = SumPattern(ranks), buffer.numpy()
    seconds = []
    dist.all_reduce(buffer)
    for _ in range(count):
        numbers.fill(view, rank)
        dist.barrier()
        started = time.monotonic()
        dist.all_reduce(buffer)
        seconds.append(time.monotonic() - started)
        off, _ = numbers.check(view)
        if off:
            raise ArithmeticError(f"gloo computed wrong sums: off by {off}")
    return {"seconds": seconds}


if __name__ == "__main__":
    serve({"open": start, "sums": sums})
