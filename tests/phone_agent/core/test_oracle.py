"""Consistency of the oracle: backward is the transpose of forward wherever forward is linear."""

from __future__ import annotations

import numpy as np
import pytest

from phone_agent.core.ops import Geometry
from tests.phone_agent.core import oracle, shapes
from tests.phone_agent.core.lrn_cases import LRN
from tests.phone_agent.core.random_data import RandomData

SHAPES = [*shapes.convolutions(full=False), *shapes.depthwise(full=False)]


@pytest.mark.parametrize("g", SHAPES, ids=shapes.name)
def test_convolution_backward_is_the_transpose(g: Geometry) -> None:
    draw = RandomData(shapes.name(g))
    x = draw.normal(g.batch, g.in_h, g.in_w, g.in_c)
    weights = draw.normal(g.kernel_h, g.kernel_w, g.in_c // g.groups, g.out_c)
    dy = draw.normal(g.batch, g.out_h, g.out_w, g.out_c)
    product = (oracle.conv_forward(g, x, weights) * dy).sum()
    assert (x * oracle.conv_backward_data(g, dy, weights)).sum() == pytest.approx(product)
    assert (weights * oracle.conv_backward_weights(g, x, dy)).sum() == pytest.approx(product)


@pytest.mark.parametrize("g", shapes.pools(full=False), ids=shapes.name)
@pytest.mark.parametrize("count_padding", [False, True])
def test_average_pool_backward_is_the_transpose(g: Geometry, *, count_padding: bool) -> None:
    draw = RandomData(shapes.name(g))
    x, dy = draw.normal(g.batch, g.in_h, g.in_w, g.in_c), draw.normal(g.batch, g.out_h, g.out_w, g.out_c)
    product = (oracle.average_pool_forward(g, x, count_padding=count_padding) * dy).sum()
    assert (x * oracle.average_pool_backward(g, dy, count_padding=count_padding)).sum() == pytest.approx(product)


@pytest.mark.parametrize("g", shapes.pools(full=False), ids=shapes.name)
def test_max_pool_backward_is_the_transpose_for_a_fixed_argmax(g: Geometry) -> None:
    draw = RandomData(shapes.name(g))
    x, dy = draw.normal(g.batch, g.in_h, g.in_w, g.in_c), draw.normal(g.batch, g.out_h, g.out_w, g.out_c)
    y, argmax = oracle.max_pool_forward(g, x)
    assert (x * oracle.max_pool_backward(g, dy, argmax)).sum() == pytest.approx((y * dy).sum())


@pytest.mark.parametrize("rule", LRN)
def test_lrn_backward_is_the_derivative(rule: tuple[int, float, float, float]) -> None:
    draw = RandomData("lrn")
    x, dy, direction = draw.normal(3, 9), draw.normal(3, 9), draw.normal(3, 9)
    step = 1e-5
    ahead, behind = (oracle.lrn_forward(x + sign * step * direction, *rule) for sign in (1, -1))
    numeric = ((ahead - behind) / (2 * step) * dy).sum()
    assert (oracle.lrn_backward(x, dy, *rule) * direction).sum() == pytest.approx(numeric, rel=1e-7)


def test_batch_norm_backward_is_the_derivative() -> None:
    draw = RandomData("norm")
    z, gradient, gamma, direction = draw.normal(20, 3), draw.normal(20, 3), draw.normal(3), draw.normal(20, 3)

    def forward(at: oracle.Array) -> oracle.Array:
        mean, inv_std, _ = oracle.statistics(at, 1e-5)
        return np.asarray(gamma * (at - mean) * inv_std)

    mean, inv_std, _ = oracle.statistics(z, 1e-5)
    dz, dgamma, dbeta = oracle.norm_backward(gradient, z, gamma, mean, inv_std)
    step = 1e-5
    numeric = ((forward(z + step * direction) - forward(z - step * direction)) / (2 * step) * gradient).sum()
    assert (dz * direction).sum() == pytest.approx(numeric, rel=1e-6)
    assert dgamma == pytest.approx((gradient * forward(z) / gamma).sum(axis=0))
    assert np.allclose(dbeta, gradient.sum(axis=0))
