from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent.contract.choices import Augmentation
from phone_agent.contract.errors import BadRequestError
from phone_agent.data.augment import Augmenter, recipe
from phone_agent.data.synthetic import Synthetic

COUNT = 120


def changed(name: str, stored: int = 16, read: int = 12, epoch: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images as stored, and as the network reads them, scaled back to [0, 1]."""
    dataset = Synthetic(COUNT, (stored, stored, 3), 4, seed=1)
    images, _ = dataset.take(np.arange(COUNT))
    out = np.empty((COUNT, read, read, 3), np.float32)
    Augmenter(dataset, (read, read, 3), name, seed=7).augment(images, np.full(COUNT, epoch), np.arange(COUNT), out)
    return images / 255, out * dataset.std + dataset.mean


def places(images: NDArray[Any], out: NDArray[Any], reach: range) -> dict[tuple[int, int, bool], int]:
    """How often crops start at each position, flipped or not."""
    found: dict[tuple[int, int, bool], int] = {}
    padded = np.pad(images, ((0, 0), (8, 8), (8, 8), (0, 0)))
    size = out.shape[1]
    for image, crop in zip(padded, out, strict=True):
        fits = [
            (top, left, flip)
            for top in reach
            for left in reach
            for flip in (False, True)
            if np.abs(image[top + 8 :, left + 8 :][:size, :size] - (crop[:, ::-1] if flip else crop)).max() < 1e-4
        ]
        assert len(fits) == 1
        found[fits[0]] = found.get(fits[0], 0) + 1
    return found


def test_without_augmentation_the_center_is_cropped() -> None:
    assert places(*changed("none"), range(-4, 9)) == {(2, 2, False): COUNT}


def test_half_of_the_images_are_flipped() -> None:
    found = places(*changed("flip"), range(-4, 9))
    assert found.keys() == {(2, 2, False), (2, 2, True)}
    assert 35 < found[2, 2, True] < 85


def test_crops_cover_the_padded_image() -> None:
    found = places(*changed("cifar", stored=12), range(-4, 5))
    for axis in (0, 1):
        assert {place[axis] for place in found} == set(range(-4, 5))
    assert 35 < sum(count for place, count in found.items() if place[2]) < 85


def test_other_epochs_and_samples_are_augmented_differently() -> None:
    for name in ("flip", "cifar", "imagenet"):
        _, first = changed(name)
        _, again = changed(name)
        _, second = changed(name, epoch=1)
        np.testing.assert_array_equal(first, again)
        assert np.mean([not np.allclose(one, two) for one, two in zip(first, second, strict=True)]) > 0.3


def test_imagenet_changes_size_and_colors_but_not_the_mean_by_much() -> None:
    images, out = changed("imagenet", stored=64, read=56)
    assert abs(out.mean() - images.mean()) < 0.02
    assert np.isfinite(out).all()
    spread = out.mean(axis=(1, 2)).std(axis=0)
    assert (spread > 1.2 * images.mean(axis=(1, 2)).std(axis=0)).all()


def test_grey_images_keep_their_one_channel() -> None:
    dataset = Synthetic(5, (20, 20, 1), 2, seed=0)
    images, _ = dataset.take(np.arange(5))
    out = np.full((5, 16, 16, 1), np.nan, np.float32)
    Augmenter(dataset, (16, 16, 1), "imagenet").augment(images, np.zeros(5, np.int64), np.arange(5), out)
    assert np.isfinite(out).all()


def test_an_unknown_augmentation_names_the_known_ones() -> None:
    with pytest.raises(BadRequestError, match=", ".join(get_args(Augmentation))):
        recipe("blur")
