"""The identity of a training state that phones hold in memory."""

from __future__ import annotations

from typing import NamedTuple


class CommittedStep(NamedTuple):
    """A step, and the attempt that committed it.

    The step alone does not identify a state: a phone that was cut off may hold a step that the others have computed
    again since, from an older state. Ordered by step first: training on from a later step loses the least work, on
    whichever attempt it was computed.
    """

    step: int
    attempt: int
