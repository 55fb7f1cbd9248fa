"""Training in one process: the reference for distributed training."""

from __future__ import annotations

from phone_agent.contract.schema import RunSpec
from phone_agent.data.sampling import Source
from phone_agent.nn.executable import Executable
from phone_agent.nn.packing import State
from phone_agent.train.optimizers import build_optimizer


def losses_alone(executable: Executable, state: State, source: Source, spec: RunSpec) -> list[float]:
    """`source` returns global batches."""
    losses, optimizer = [], build_optimizer(spec.optimizer, state, backend=spec.compute.backend)
    for step in range(spec.steps):
        batch = source.batch(step)
        losses.append(executable.loss_and_gradients(batch.images, batch.labels, 1.0))
        optimizer.update(slice(None), spec.optimizer.learning_rate, step + 1)
    return losses
