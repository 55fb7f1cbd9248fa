"""A worker of torchrun: one allreduce after the other; rank 0 writes each down. See recovery.py.

Every time that the ranks come together they have a new number, which stands before their steps.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed


def main(steps: Path, patience_s: float) -> None:
    """`patience_s`: how long an allreduce may take. By itself gloo waits for half an hour, as it should when ranks come
    together, who start one after the other."""
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
