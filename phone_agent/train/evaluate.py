"""Right answers on held-out samples."""

from __future__ import annotations

import numpy as np

from phone_agent.data import Dataset
from phone_agent.data.sampling import normalise
from phone_agent.nn.backends import Executable

BATCH = 250


def right_answers(executable: Executable, test: Dataset, trained_on: Dataset) -> int:
    """How many; images are normalised as those trained on were."""
    right = 0
    for start in range(0, len(test), BATCH):
        images, labels = test.take(np.arange(start, min(start + BATCH, len(test))))
        scores = executable.forward(normalise(images, trained_on))
        right += int((scores.argmax(axis=1) == labels).sum())
    return right
