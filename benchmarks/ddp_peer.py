"""One rank of PyTorch DistributedDataParallel over gloo, as a contestant of `ddp` (see peers.py)."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.networks import network, sample
from benchmarks.peers import serve
from benchmarks.torch_peer import Trainer, images_to_torch, torch_net
from phone_agent.nn.packing import State


class Contestant:
    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._images = self._labels = torch.empty(0)

    def open(self, model: str, batch: int, *, rank: int, ranks: int, store: str) -> dict[str, Any]:
        """`store`: address and port of the rendezvous store on the head phone."""
        torch.set_num_threads(1)
        distributed.init_process_group("gloo", init_method=f"tcp://{store}", rank=rank, world_size=ranks)
        graph = network(model)
        net = torch_net(graph, State(graph, seed=1))
        self._trainer = Trainer(DistributedDataParallel(net, gradient_as_bucket_view=True))
        made = sample(graph, batch, seed=rank)
        self._images, self._labels = images_to_torch(made.images), torch.from_numpy(made.labels).long()
        return {"optimizer": self._trainer.choose(self._images, self._labels)}

    def steps(self, count: int) -> dict[str, Any]:
        """Run steps and return the end time of each."""
        assert self._trainer is not None
        ended = []
        for _ in range(count):
            self._trainer.step(self._images, self._labels)
            ended.append(time.monotonic())
        return {"ended": ended}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    contestant = Contestant()
    serve({"open": contestant.open, "steps": contestant.steps})
