"""Published figures with their sources. Nothing here was measured by us.

Most of it is from Chen, Biookaghazadeh and Zhao, "Exploring the Capabilities of Mobile Devices in Supporting Deep
Learning", SEC '19; the heat of a phone that trains is from Na et al., "Scalable Smartphone Cluster for Deep Learning",
2021. Most times are only plotted; those stated in the text are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CHEN = "Chen et al."
NA = "Na et al."
SOURCES = {
    CHEN: "Exploring the Capabilities of Mobile Devices in Supporting Deep Learning, SEC 2019: a Pixel 2, TensorFlow+",
    NA: "Scalable Smartphone Cluster for Deep Learning, 2021: Galaxy S10+ phones, Caffe",
}
BATCH = 128

Cells = Mapping[tuple[int, int], tuple[str, str]]  # (width, depth): FLOPs and parameters, as printed

TABLE_4: Cells = {
    (64, 1): ("15.1G", "196K"), (128, 1): ("30G", "393K"), (256, 1): ("60G", "786K"), (512, 1): ("121G", "1.57M"),
    (64, 2): ("15.4G", "200K"), (128, 2): ("31G", "409K"), (256, 2): ("65G", "852.48K"), (512, 2): ("141G", "1.84M"),
    (64, 4): ("16G", "209K"), (128, 4): ("34G", "442K"), (256, 4): ("75G", "984K"), (512, 4): ("181G", "2.36M"),
    (64, 8): ("17G", "225K"), (128, 8): ("39G", "508K"), (256, 8): ("95G", "1.25M"), (512, 8): ("252G", "3.41M"),
}  # fmt: skip
TABLE_5: Cells = {
    (64, 1): ("1.3G", "1.7K"), (128, 1): ("2.7G", "3.5K"), (256, 1): ("5.5G", "7K"), (512, 1): ("11G", "14K"),
    (64, 2): ("30G", "38.7K"), (128, 2): ("118G", "15K"), (256, 2): ("469G", "597K"), (512, 2): ("618G", "237M"),
    (64, 4): ("88G", "112K"), (128, 4): ("350G", "446K"), (256, 4): ("1397G", "1.78M"), (512, 4): ("5577G", "7.09M"),
    (64, 8): ("204G", "260K"), (128, 8): ("814G", "1M"), (256, 8): ("3253G", "4M"), (512, 8): ("13000G", "537M"),
}  # fmt: skip


@dataclass(frozen=True)
class Misprint:
    """A printed table cell that contradicts its network."""

    table: int
    width: int
    depth: int
    column: str  # flops or parameters
    printed: str
    should_be: str
    why: str


MISPRINTS = (
    Misprint(4, 512, 8, "flops", "252G", "262G", "the other fifteen cells follow one rule; by it this one is 261.8"),
    Misprint(5, 128, 2, "parameters", "15K", "151K", "3x3x3x128 + 128 and 3x3x128x128 + 128: a digit is lost"),
    Misprint(5, 512, 2, "flops", "618G", "1867G", "three passes of 2.37 M weights at 1024 places for 128 images"),
    Misprint(5, 512, 2, "parameters", "237M", "2.37M", "14 336 and 2 359 808: the point is lost"),
    Misprint(
        5, 512, 8, "parameters", "537M", "16.5M",
        "14 336 and seven times 2 359 808; the text's own '4.85 times' the dense network's 3.41 M is 16.5 M",
    ),
)  # fmt: skip

TABLE_4_UNIT = 100  # the printed FLOPs are those of this many steps
TABLE_4_UNIT_WHY = (
    "All FLOPs of table 4 are 100 times those of one step of 128 images, by the rule that table 5 follows without that "
    "factor. Figure 6 shows less than a quarter of a second for the largest: 252 GFLOP would be a teraflop a second, "
    "2.6 GFLOP are ten gigaflops."
)


@dataclass(frozen=True)
class Figure:
    """One published number."""

    where: str
    what: str
    value: float
    unit: str
    source: str = CHEN


FIGURES: Mapping[str, Figure] = {
    "fc depth training": Figure("figure 6a, 4.3.1", "dense layers, training: 8 layers against 1", 2.0, "x"),
    "fc width training": Figure("figure 6a, 4.3.1", "dense layers, training: width 512 against 64", 3.54, "x"),
    "fc depth inference": Figure("figure 6b, 4.3.1", "dense layers, inference: 8 layers against 1", 1.857, "x"),
    "fc width inference": Figure("figure 6b, 4.3.1", "dense layers, inference: width 512 against 64", 5.57, "x"),
    "conv depth training": Figure("figure 8a, 4.3.2", "convolutions, training: 8 layers against 1", 125, "x"),
    "conv width training": Figure("figure 8a, 4.3.2", "convolutions, training: width 512 against 64", 64, "x"),
    "conv depth inference": Figure("figure 8b, 4.3.2", "convolutions, inference: 8 layers against 1", 625, "x"),
    "conv width inference": Figure("figure 8b, 4.3.2", "convolutions, inference: width 512 against 64", 75, "x"),
    "conv against fc": Figure("4.3.2", "convolutions against dense layers, training", 100, "x"),
    "separable training": Figure("figure 10a", "one layer of 512, training: standard to separable", 3, "x"),
    "separable inference": Figure("figure 10b", "one layer of 512, inference: standard to separable", 2, "x"),
    "gradients of backward": Figure("figure 11, 4.4", "convolution gradients (backward pass)", 91, "%"),
    "gradients of step": Figure("figure 11, 4.4", "convolution gradients, of the whole step", 65, "%"),
    "backward of step": Figure("3.2", "backward path, of the whole step", 70, "%"),
    "gpu conv": Figure("figure 13, 4.5", "convolutions only, training: GPU against CPU", 2.2, "x"),
    "gpu mobilenet training": Figure("figure 14, 4.5", "reduced MobileNet, training: GPU against CPU", 1.7, "x"),
    "gpu mobilenet inference": Figure("figure 14, 4.5", "reduced MobileNet, inference: GPU against CPU", 1.2, "x"),
    "mentee cpu": Figure("4.7.2", "CPU while training Mentee, of one core", 348, "%"),
    "mobilenet cpu": Figure("4.7.2", "CPU while training reduced MobileNet, of one core", 305, "%"),
    "background training": Figure("figure 16, 4.7.1", "training in the background against the foreground", 3, "x"),
    "foreground loss": Figure("figure 17, 4.7.2", "slowdown of a foreground CPU test during training", 30, "%"),
    "heat first": Figure("figure 7c", "a step after it warmed, against cold (18.2 s)", 14.8, "%", NA),
    "heat last": Figure("figure 7c", "a step when it throttled, against cold (18.2 s)", 36.3, "%", NA),
}
OUT_OF_MEMORY = {("conv", 512, 4), ("conv", 512, 8)}  # on a Pixel 2 with 4 GB, batch 128: 4.3.2
