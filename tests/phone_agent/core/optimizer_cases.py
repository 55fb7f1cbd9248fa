"""Cases for the optimizer update: segments of awkward lengths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Kind, OptimizerKind
from tests.phone_agent.core import oracle
from tests.phone_agent.core.memory import GAP, Case, Memory, Wanted, block, struct
from tests.phone_agent.core.random_data import RandomData

ELEMENTWISE = 2e-6
SEGMENTS = [[1], [2, 7, 8, 15, 31, 33, 63, 65], [5, 0, 16], [3, 4, 5, 17, 1000], [8191, 8192, 8193], [20000, 1, 40000]]
FROZEN = 7  # values between segments, which belong to none


def updates(*, full: bool) -> Iterator[Case]:
    """Every second segment is adaptive, every third has weight decay."""
    for method, counts, step in product(OptimizerKind, SEGMENTS, (1, 100) if full else (3,)):
        name = f"{method.name} {'+'.join(map(str, counts))} step={step}"
        draw = RandomData(name)
        starts = np.cumsum([FROZEN, *(count + FROZEN for count in counts)])
        size = int(starts[-1])
        values, momenta, gradients = draw.normal(size), draw.normal(size), draw.normal(size)
        second = draw.positive(size)
        rule = oracle.Rule(method, rate=0.1, trust=0.02, epsilon=1e-6, momentum=0.9, second_momentum=0.999, step=step)
        wanted = {"weights": values.copy(), "momenta": momenta.copy(), "second_moments": second.copy()}
        parts = []
        for index, (start, count) in enumerate(zip(starts[:-1], counts, strict=True)):
            decay, adapted = (0.01 if index % 3 == 0 else 0.0), index % 2 == 0
            part = slice(start, start + count)
            after = oracle.update(
                rule, values[part], gradients[part], momenta[part], second[part], decay=decay, adapted=adapted
            )
            for into, new in zip(wanted.values(), after, strict=True):
                into[part] = new
            parts.append(ops.Segment(int(start), count, decay, adapted))
        frozen = np.ones(size, bool)
        for each in parts:
            frozen[each.start : each.start + each.count] = False
        before = {"weights": values, "momenta": momenta, "second_moments": second}
        for buffer in (*before.values(), *wanted.values()):
            buffer[frozen] = GAP
        changed = ("weights", "momenta", "second_moments") if method == OptimizerKind.LAMB else ("weights", "momenta")
        blocks = {key: block(key, before[key]) for key in changed}
        op = struct(
            ops.OptimizerUpdate, **blocks, gradients=block("gradients", gradients), params=_params(rule),
            segments=Memory("segments", np.frombuffer(b"".join(map(bytes, parts)), np.uint8).copy()),
            count=len(parts), optimizer=method,
        )  # fmt: skip
        yield Case(
            name, Kind.OPTIMIZER_UPDATE, op, tuple(Wanted(blocks[key], wanted[key], ELEMENTWISE) for key in changed)
        )


def _params(rule: oracle.Rule) -> Memory:
    made = ops.OptimizerParams(
        lr=rule.rate, trust_coefficient=rule.trust, epsilon=rule.epsilon, momentum=rule.momentum,
        one_minus_momentum=1 - rule.momentum, bias_correction=1 / (1 - rule.momentum**rule.step),
        beta2=rule.second_momentum, one_minus_beta2=1 - rule.second_momentum,
        bias_correction2=1 / (1 - rule.second_momentum**rule.step),
    )  # fmt: skip
    return Memory("params", np.frombuffer(bytes(made), np.uint8).copy())
