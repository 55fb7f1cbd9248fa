"""PyTorch's allreduce over gloo: one rank, in a phone's network. Asked over pipes; see benchmarks.peers."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.peers import serve


def start(store: str, ranks: int, rank: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{store}", world_size=ranks, rank=rank)
    return {}


def sums(megabytes: float, count: int) -> dict[str, Any]:
    """Seconds of each on this rank, all having started together."""
    buffer = torch.ones(round(megabytes * 1e6 / 4))
    seconds = []
    for _ in range(count):
        buffer.fill_(1.0)
        dist.barrier()
        started = time.monotonic()
        dist.all_reduce(buffer)
        seconds.append(time.monotonic() - started)
        if not bool((buffer == float(dist.get_world_size())).all()):
            raise ArithmeticError("gloo's sums are wrong")
    return {"seconds": seconds}


if __name__ == "__main__":
    serve({"open": start, "sums": sums})
