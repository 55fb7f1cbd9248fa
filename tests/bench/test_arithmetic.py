from __future__ import annotations

import pytest

from phone_agent import models
from phone_agent.bench.arithmetic import training_flops
from phone_agent.nn.graph import Conv, Dense, GraphBuilder


def test_counts_both_gradients_but_not_that_of_the_image() -> None:
    net = GraphBuilder((4, 4, 3))
    net.add("conv", Conv(8, 3, padding=1))
    net.add("dense", Dense(5))
    assert training_flops(net.build()) == 2 * (2 * 4 * 4 * 8 * 27) + 3 * (2 * 4 * 4 * 8 * 5)


@pytest.mark.parametrize(
    ("name", "gigaflops"),
    [("resnet50", 24.3), ("mobilenet_v1", 3.39), ("mobilenet_v2", 1.78), ("squeezenet_v1_1", 2.05)],
)
def test_known_networks(name: str, gigaflops: float) -> None:
    assert training_flops(models.build(name)) / 1e9 == pytest.approx(gigaflops, rel=0.03)
