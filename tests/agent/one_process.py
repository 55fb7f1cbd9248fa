"""Training in one process, without any of what makes it run on many: what that is compared with."""

from __future__ import annotations

from phone_agent.data.sampling import Source
from phone_agent.nn.backends import Executable
from phone_agent.schema import RunSpec


def losses_alone(executable: Executable, source: Source, spec: RunSpec) -> list[float]:
    """`source` gives global batches."""
    losses, rules = [], spec.optimizer
    for step in range(spec.steps):
        batch = source.batch(step)
        losses.append(executable.loss_and_gradients(batch.images, batch.labels, 1.0))
        executable.update(rules.learning_rate, rules.momentum, rules.weight_decay, slice(None))
    return losses
