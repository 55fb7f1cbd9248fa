"""What Na et al. (2021) print of their 138 phones, to stand beside ours."""

from __future__ import annotations

# Table I: images a phone and step, as many as fitted its memory.
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

# The share of a step that is computing. Of all networks they give the best and the worst in words.
EFFICIENCY = {"squeezenet_v1_1": 0.858, "resnet152": 0.122}
PHONES = 138
