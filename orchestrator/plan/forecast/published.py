"""Results of Na et al. (2021) on 138 phones, for comparison."""

from __future__ import annotations

# Table I: batch size per phone, the largest that fitted in memory.
BATCHES = {
    "alexnet": 32,
    "googlenet": 16,
    "inception_v3": 4,
    "mobilenet_v1": 8,
    "mobilenet_v2": 8,
    "resnet50": 4,
    "resnet101": 2,
    "resnet152": 2,
    "squeezenet_v1_0": 16,
    "squeezenet_v1_1": 32,
}

# Compute time / step time. The text gives only the best and the worst network.
EFFICIENCY = {"squeezenet_v1_1": 0.858, "resnet152": 0.122}
PHONES = 138
