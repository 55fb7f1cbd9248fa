"""Where Winograd's convolutions pay: a cost model of the core's three ways to convolve, with constants measured on it.

Costs are in multiply-adds: what is not arithmetic is counted as the multiply-adds that fit into the same time. So only
ratios matter, and they hold roughly from one processor to the next.
"""

from __future__ import annotations

from collections.abc import Mapping

from phone_agent.core.ops import Algorithm, Kind

TILE = {Algorithm.WINOGRAD2: 2, Algorithm.WINOGRAD4: 4}

# To transform one number (and write it where the products read it, and read it there): multiply-adds in that time.
INPUT, OUTPUT, FILTER = 10.0, 10.0, 8.0
# A product of small matrices, one a point, against one large product.
PRODUCTS = 1.15


def choose(kind: Kind, shape: Mapping[str, int]) -> Algorithm:
    """The cheapest; `shape`: the fields of a geometry."""
    if not possible(shape):
        return Algorithm.DIRECT
    return min(Algorithm, key=lambda algorithm: cost(algorithm, kind, shape))


def possible(shape: Mapping[str, int]) -> bool:
    return (
        shape["kernel_h"] == shape["kernel_w"] == 3
        and shape["stride"] == shape["dilation"] == shape["groups"] == 1
    )  # fmt: skip


def cost(algorithm: Algorithm, kind: Kind, shape: Mapping[str, int]) -> float:
    channels, filters = shape["in_c"], shape["out_c"]
    if algorithm == Algorithm.DIRECT:
        return 9.0 * shape["batch"] * shape["out_h"] * shape["out_w"] * channels * filters
    tile = TILE[algorithm]
    high, wide = (shape["in_h"], shape["in_w"]) if kind == Kind.CONV_BACKWARD_DATA else (shape["out_h"], shape["out_w"])
    points = (tile + 2) ** 2
    tiles = shape["batch"] * -(-high // tile) * -(-wide // tile)
    products = PRODUCTS * points * tiles * channels * filters
    transforms = points * (INPUT * tiles * channels + OUTPUT * tiles * filters + FILTER * channels * filters)
    return products + transforms
