"""Convolution algorithm selection, for each direction, by a cost model of the core that is fitted to measurements.

Costs are in multiply-adds of the direct algorithm: other work counts as the multiply-adds that fit into the same time.
Fitted to 16 layers of ResNet-50, GoogLeNet, SqueezeNet, AlexNet and Inception, batches 2 to 16, AVX-512, one thread.
Winograd F(4x4) against direct: forward and backward data 1.2 to 2.8 times as fast, but half as fast for 512 channels on
7x7 at batch 2, since transforming the weights costs the same for few tiles as for many; backward weights 1.1 to 2.1
times as fast up to 128 channels, no gain from 256 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phone_agent.core.ops import Algorithm, Kind
from phone_agent.nn.plan.options import Options

AlgorithmSelector = Callable[[Kind, dict[str, int]], Algorithm]

CONV_KINDS = {Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS}  # not depthwise
TILE = {Algorithm.WINOGRAD2: 2, Algorithm.WINOGRAD4: 4}

# Cost per point of transforming one number into or out of the Winograd domain.
TRANSFORM = 26.0
TRANSFORM_BACKWARD = 40.0  # backward weights: two rows of points at a time, so inputs are read again
FILTER = 25.0
FILTER_BACKWARD = 60.0  # its sums are written and read again
# Transformed weights of more floats do not stay in the caches; they are read again for each block of tiles.
CACHED_FLOATS = 768 * 1024
TILES_PER_PASS = 64
# Backward weights: block sizes in channels. Inputs are transformed once per block of outputs, and vice versa.
BLOCK_IN, BLOCK_OUT = 132, 64
MIN_SPEEDUP = 1.1  # a smaller gain is not worth the rounding errors


def select_algorithm(kind: Kind, shape: Mapping[str, int]) -> Algorithm:
    """The cheapest algorithm. `shape`: the fields of a geometry."""
    if not is_applicable(shape):
        return Algorithm.DIRECT
    best = min(TILE, key=lambda algorithm: cost(algorithm, kind, shape))
    return best if cost(best, kind, shape) * MIN_SPEEDUP < cost(Algorithm.DIRECT, kind, shape) else Algorithm.DIRECT


def is_applicable(shape: Mapping[str, int]) -> bool:
    return shape["kernel_h"] == shape["kernel_w"] == 3 and shape["stride"] == shape["dilation"] == shape["groups"] == 1


def cost(algorithm: Algorithm, kind: Kind, shape: Mapping[str, int]) -> float:
    channels, filters = shape["in_c"], shape["out_c"]
    if algorithm == Algorithm.DIRECT:
        return 9.0 * shape["batch"] * shape["out_h"] * shape["out_w"] * channels * filters
    tile = TILE[algorithm]
    points = (tile + 2) ** 2
    high, wide = (shape["in_h"], shape["in_w"]) if kind == Kind.CONV_BACKWARD_DATA else (shape["out_h"], shape["out_w"])
    tiles = shape["batch"] * -(-high // tile) * -(-wide // tile)
    passes = max(1.0, tiles / TILES_PER_PASS) if points * channels * filters > CACHED_FLOATS else 1.0
    if kind == Kind.CONV_BACKWARD_WEIGHTS:
        moved = channels * -(-filters // BLOCK_OUT) + filters * -(-channels // BLOCK_IN)
        transforms = TRANSFORM_BACKWARD * tiles * moved + FILTER_BACKWARD * passes * channels * filters
    else:
        transforms = TRANSFORM * tiles * (channels + filters) + FILTER * passes * channels * filters
    return points * (tiles * channels * filters + transforms)


def algorithm_selector(options: Options) -> AlgorithmSelector:
    return _select_cheapest if options.winograd else select_direct


def _select_cheapest(kind: Kind, shape: dict[str, int]) -> Algorithm:
    return select_algorithm(kind, shape) if kind in CONV_KINDS else Algorithm.DIRECT


def select_direct(_kind: Kind, _shape: dict[str, int]) -> Algorithm:
    return Algorithm.DIRECT
