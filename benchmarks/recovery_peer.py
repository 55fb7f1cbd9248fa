"""torchrun worker for recovery.py: one allreduce after another; rank 0 logs each one.

Each rendezvous starts a new generation, whose number precedes its steps in the log.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed


def main(steps: Path, patience_s: float) -> None:
    """`patience_s` is the timeout of an allreduce. The gloo default of half an hour suits only the rendezvous, where
    ranks start one after another."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    group = distributed.new_group(timeout=timedelta(seconds=patience_s))
    generation = time.time_ns()
    while True:
        distributed.all_reduce(torch.ones(1000), group=group)
        if distributed.get_rank() == 0:
            with steps.open("a") as file:
                file.write(f"{generation} step\n")
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
