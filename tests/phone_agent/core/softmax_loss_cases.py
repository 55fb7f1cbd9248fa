"""Cases for the softmax cross-entropy loss and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core import oracle
from tests.phone_agent.core.memory import Case, Wanted, block, read_rows, struct, written_rows
from tests.phone_agent.core.operands import SOFTMAX, Cases
from tests.phone_agent.core.random_data import RandomData


def _softmax_losses(*, full: bool) -> Iterator[Case]:
    for batch, classes, extra in [(1, 1, 0), (1, 10, 0), (7, 10, 3), (3, 17, 0), (16, 1000, 0), (65, 33, 5)]:
        for spread, smoothing in product((1.0, 40.0) if full else (5.0,), (0.0, 0.1)):
            name = f"{batch}x{classes} spread={spread} smoothing={smoothing} +{extra}"
            draw = RandomData(name)
            logits = (spread * draw.normal(batch, classes)).astype(np.float32).astype(np.float64)
            labels = draw.integers(0, classes, batch)
            loss, dlogits = oracle.softmax_loss(logits, labels, 0.25, smoothing)
            into = written_rows("dlogits", None, dlogits, classes + extra, SOFTMAX)
            loss_wanted = Wanted(block("loss", np.array([np.nan]), np.float64), np.array([loss]), SOFTMAX)
            op = struct(
                ops.SoftmaxLoss, logits=read_rows("logits", logits, classes + extra),
                labels=block("labels", labels, np.int32), weight=block("weight", np.array([0.25])), dlogits=into.memory,
                loss=loss_wanted.memory, batch=batch, classes=classes, ld_logits=classes + extra,
                ld_dlogits=classes + extra, smoothing=smoothing,
            )  # fmt: skip
            yield Case(name, Kind.SOFTMAX_LOSS, op, (into, loss_wanted))


KINDS: dict[Kind, Cases] = {
    Kind.SOFTMAX_LOSS: _softmax_losses,
}
