"""Right answers on held-out samples."""

from __future__ import annotations

import numpy as np

from phone_agent.data import Dataset
from phone_agent.data.sampling import Normaliser
from phone_agent.nn.backends import Executable


def right_answers(executable: Executable, test: Dataset, trained_with: Normaliser) -> int:
    """How many; images are normalised as those trained on were, and as many at once: no more memory than training.

    The last batch is filled up with samples judged before: of a smaller one the executable would need a copy.
    """
    right = 0
    for start in range(0, len(test), trained_with.batch):
        images, labels = test.take(np.arange(start, start + trained_with.batch) % len(test))
        scores = executable.forward(trained_with.normalise(images))
        right += int((scores.argmax(axis=1) == labels)[: len(test) - start].sum())
    return right
