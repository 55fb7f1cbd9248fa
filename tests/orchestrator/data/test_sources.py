"""Every format, whole and damaged, honest and hostile."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from orchestrator import decompress
from orchestrator.data.sources import contents, recognize
from orchestrator.data.sources import folder as folders
from orchestrator.data.sources.folder import decode
from orchestrator.data.sources.pickled import UnsupportedPickleError, read
from orchestrator.data.sources.source import Block, Source, SourceError
from orchestrator.errors import ClusterctlError
from tests.orchestrator.data.samples import (
    NAMES10,
    archive,
    cifar10_binary,
    cifar10_python,
    cifar100_binary,
    hostile_archive,
    pickled,
    picture,
    pixels,
    planes,
)
from tests.orchestrator.launch.idx import relabel, write_idx


def train_of(source: Source) -> Block:
    blocks = list(source.train())
    damaged = [each for block in blocks for each in block.damaged]
    return Block(np.concatenate([b.images for b in blocks]), np.concatenate([b.labels for b in blocks]), damaged)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("make", [cifar10_binary, cifar10_python])
def test_cifar10(tmp_path: Path, make: Callable[[Path], Path], *, packed: bool) -> None:
    path = make(tmp_path / "cifar-10")
    source = recognize(archive(path, tmp_path / "cifar.tar.gz") if packed else path, 256)
    assert source.shape == (32, 32, 3)
    assert list(source.class_names) == NAMES10
    block = train_of(source)
    assert block.labels.tolist()[:8] == [0, 1, 2, 3, 1, 2, 3, 4]
    np.testing.assert_array_equal(block.images[4:8], pixels(planes(4, 1)))
    (test,) = source.test()
    assert len(test.labels) == 4
    assert source.counts() == (20, 4)


@pytest.mark.parametrize("protocol", [1, 2, 3])
def test_pickles_of_every_age_are_read(tmp_path: Path, protocol: int) -> None:
    block = train_of(recognize(cifar10_python(tmp_path / "cifar", protocol=protocol), 0))
    np.testing.assert_array_equal(block.images[:4], pixels(planes(4)))


def test_cifar100_by_fine_labels(tmp_path: Path) -> None:
    source = recognize(cifar100_binary(tmp_path / "cifar-100"), 0)
    assert len(source.class_names) == 100
    assert train_of(source).labels.tolist() == [0, 30, 60, 90]


def test_the_folder_around_an_unpacked_archive_will_do(tmp_path: Path) -> None:
    cifar10_binary(tmp_path / "cifar-10-batches-bin")
    assert recognize(tmp_path, 0).format == "cifar10 binary"


def test_cut_off_records_and_wrong_labels_are_named(tmp_path: Path) -> None:
    path = cifar10_binary(tmp_path / "cifar")
    second = path / "data_batch_2.bin"
    raw = bytearray(second.read_bytes())
    raw[3073] = 77
    second.write_bytes(raw[:-100])
    block = train_of(recognize(path, 0))
    assert len(block.labels) == 18
    reported = [(Path(each.file).name, each.index, each.reason) for each in block.damaged]
    assert reported == [
        ("data_batch_2.bin", 1, "label 77 is not a valid class"),
        ("data_batch_2.bin", 3, "truncated after 2973 bytes"),
    ]


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    path = cifar10_binary(tmp_path / "cifar")
    (path / "data_batch_4.bin").unlink()
    block = train_of(recognize(path, 0))
    assert len(block.labels) == 16
    assert [(Path(each.file).name, each.reason) for each in block.damaged] == [
        ("data_batch_4.bin", "the file is missing")
    ]


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch /tmp/owned-by-a-pickle",)


TEXT = st.binary(min_size=1, max_size=9)  # of empty bytes Python 3 makes a call

# As Python 2 wrote it: what the published archives hold.
OF_PYTHON_2 = (
    b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x06K\x09eU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05"
    b"cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x06\x00\x00\x00abcdeftbu."
)


def test_pickles_of_python_2_are_read() -> None:
    found = read(OF_PYTHON_2)
    assert found[b"labels"] == [6, 9]
    assert found[b"data"].tolist() == [[97, 98, 99], [100, 101, 102]]


HOSTILE_PICKLES = {
    "a call": pickled({b"data": Evil()}),
    "another call": pickled({b"data": np.dtype("f8")}),
    "floats": pickled({b"data": np.zeros((2, 3072))}),
    "objects": pickled({b"data": np.array([None, {}], dtype=object)}),
    "not a dictionary": pickled([1, 2]),
    "text keys": pickled({"data": 1}, 4),
    "cut off": pickled({b"data": planes(2)})[:-50],
    "nothing": b"",
    "garbage": b"\x80\x02}q\x00(X\xff\xff\xff\xff",
    "an endless stack": b"(" * 100 + b".",
    "an encoded number": b"\x80\x02}U\x01ac_codecs\nencode\nK\x01U\x06latin1\x86Rs.",
    "a long number": b"\x80\x02}U\x01a\x8a\x09" + bytes(8) + b"\x01s.",
}


@pytest.mark.parametrize("what", HOSTILE_PICKLES)
def test_other_pickles_are_refused_and_nothing_is_run(what: str) -> None:
    with pytest.raises(UnsupportedPickleError):
        read(HOSTILE_PICKLES[what])
    assert not Path("/tmp/owned-by-a-pickle").exists()  # noqa: S108


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_do_anything_else(raw: bytes) -> None:
    with contextlib.suppress(UnsupportedPickleError):
        assert isinstance(read(raw), dict)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(TEXT, st.lists(st.integers(-(2**31), 2**31 - 1) | TEXT, max_size=5)))
def test_what_such_pickles_hold_is_read_as_pickle_does(content: dict[bytes, list[int | bytes]]) -> None:
    for protocol in (1, 2):
        raw = pickled(content, protocol)
        assert read(raw) == pickle.loads(raw)  # noqa: S301 - made a line above


def test_a_pickle_that_is_refused_names_its_file(tmp_path: Path) -> None:
    path = cifar10_python(tmp_path / "cifar")
    (path / "data_batch_3").write_bytes(HOSTILE_PICKLES["a call"])
    with pytest.raises(SourceError, match=r"data_batch_3 is not a CIFAR pickle: unsupported global b'posix system'"):
        train_of(recognize(path, 0))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx(tmp_path: Path, ending: str) -> None:
    write_idx(tmp_path / "dots", train=9, test=3)
    if ending:
        for file in (tmp_path / "dots").iterdir():
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    source = recognize(tmp_path / "dots", 0)
    assert source.shape == (28, 28, 1)
    assert train_of(source).labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert source.records() == 12
    assert source.counts() == (9, 2), "of the tenth class there is none to learn from"


def rename_all(directory: Path, change: Callable[[str], str]) -> None:
    for file in directory.iterdir():
        file.rename(file.with_name(change(file.name)))


def as_emnist(name: str) -> str:
    return "emnist-letters-" + name.replace("t10k", "test")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "dots": lambda name: name.replace("-idx", ".idx"),
    "a dot in some": lambda name: name.replace("labels-idx", "labels.idx"),
    "EMNIST": as_emnist,
    "prefix": lambda name: f"my.own_{name}",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_idx_as_mirrors_spell_it(tmp_path: Path, spelling: str, *, packed: bool) -> None:
    write_idx(tmp_path / "dots", train=10, test=3)
    rename_all(tmp_path / "dots", SPELLINGS[spelling])
    (tmp_path / "dots/._train-images-idx3-ubyte").write_bytes(b"of a Mac")
    source = recognize(archive(tmp_path / "dots", tmp_path / "dots.tar.gz") if packed else tmp_path / "dots", 0)
    assert (source.format, source.shape, source.counts()) == ("idx", (28, 28, 1), (10, 3))


def test_of_two_spellings_of_one_name_the_plain_one_is_read(tmp_path: Path) -> None:
    write_idx(tmp_path / "dots", train=10, test=3)
    for name in ("train-images.idx3-ubyte", "train-images-idx3-ubyte.gz"):
        (tmp_path / "dots" / name).write_bytes(b"not this one")
    assert recognize(tmp_path / "dots", 0).counts() == (10, 3)


def test_of_several_idx_datasets_none_is_guessed(tmp_path: Path) -> None:
    write_idx(tmp_path / "dots", train=10, test=3)
    rename_all(tmp_path / "dots", as_emnist)
    (tmp_path / "dots/emnist-digits-train-images-idx3-ubyte.gz").touch()
    (tmp_path / "dots/t10k-labels-idx1-ubyte").touch()
    with pytest.raises(SourceError) as raised:
        recognize(tmp_path / "dots", 0)
    assert raised.value.message == (
        f"{tmp_path}/dots contains IDX files from 3 datasets: files without a prefix, emnist-digits-…, emnist-letters-…"
    )
    assert raised.value.remedy == "put each dataset into its own folder"


def test_of_two_held_out_parts_none_is_guessed(tmp_path: Path) -> None:
    write_idx(tmp_path / "dots", train=10, test=3)
    for name in ("test-images-idx3-ubyte", "test-labels-idx1-ubyte"):
        (tmp_path / "dots" / name).touch()
    with pytest.raises(SourceError, match="test-images-idx3-ubyte: only one can be the test set"):
        recognize(tmp_path / "dots", 0)


def test_a_damaged_label_makes_no_classes(tmp_path: Path) -> None:
    write_idx(tmp_path / "dots", train=400, test=20)
    relabel(tmp_path / "dots", "train", {3: 200, 7: 12})
    relabel(tmp_path / "dots", "t10k", {5: 10})
    source = recognize(tmp_path / "dots", 0)
    assert source.class_names == tuple("0123456789")
    block = train_of(source)
    reason = "is not a valid class: training labels are 0 to 9"
    file = "train-labels-idx1-ubyte"
    assert [str(each) for each in block.damaged] == [
        f"{file}, record 3: label 200 {reason}",
        f"{file}, record 7: label 12 {reason}",
    ]
    assert len(block.images) == len(block.labels) == 398
    (test,) = source.test()
    assert [str(each) for each in test.damaged] == [f"t10k-labels-idx1-ubyte, record 5: label 10 {reason}"]
    assert source.counts() == (398, 19)


def test_a_number_that_is_left_out_is_no_damage(tmp_path: Path) -> None:
    """Sign language's letters have none for J, which is a motion; some take two digits only."""
    write_idx(tmp_path / "dots", train=40, test=20)
    for part, count in (("train", 40), ("t10k", 20)):
        relabel(tmp_path / "dots", part, {index: (3, 8)[index % 2] for index in range(count)})
    source = recognize(tmp_path / "dots", 0)
    assert (len(source.class_names), source.counts(), train_of(source).damaged) == (6, (40, 20), [])


def test_labels_may_start_above_nought(tmp_path: Path) -> None:
    """As those of EMNIST's letters: 1 to 26."""
    write_idx(tmp_path / "dots", train=40, test=20)
    for part, count in (("train", 40), ("t10k", 20)):
        relabel(tmp_path / "dots", part, {index: 1 + index % 5 for index in range(count)})
    source = recognize(tmp_path / "dots", 0)
    assert source.class_names == tuple("12345")
    block = train_of(source)
    assert block.labels.tolist() == [index % 5 for index in range(40)]
    assert not block.damaged
    relabel(tmp_path / "dots", "t10k", {5: 0})
    (test,) = recognize(tmp_path / "dots", 0).test()
    assert [str(each) for each in test.damaged] == [
        "t10k-labels-idx1-ubyte, record 5: label 0 is not a valid class: training labels are 1 to 5"
    ]


def test_a_cut_off_idx_file_gives_what_it_has(tmp_path: Path) -> None:
    write_idx(tmp_path / "dots", train=9, test=3)
    images = tmp_path / "dots/train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1000])
    block = train_of(recognize(tmp_path / "dots", 0))
    assert len(block.labels) == 7
    assert [each.reason for each in block.damaged] == ["the file ends here; the header announces 9 records"]


BROKEN_IDX = [
    b"",
    b"hello",
    b"\0\0\x08\x03only this",
    b"\0\0\x0d\x01\0\0\0\x01\0",
    b"\x1f\x8bnot gzip at all",
    b"\0\0\x08\xff",
]


@pytest.mark.parametrize("raw", BROKEN_IDX)
def test_a_broken_idx_file_is_told(tmp_path: Path, raw: bytes) -> None:
    write_idx(tmp_path / "dots", train=9, test=3)
    (tmp_path / "dots/train-images-idx3-ubyte").write_bytes(raw)
    with pytest.raises(SourceError, match="train-images"):
        recognize(tmp_path / "dots", 0)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_hostile_archives_write_nothing_and_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    links = [member(name, tarfile.SYMTYPE, "/etc/passwd") for name in ("test_batch.bin", "data_batch_1.bin")]
    for members in (
        [member("../../escaped"), member("/escaped-absolute")],
        [*links, member("batches.meta.txt")],
        [member("a/test_batch.bin"), member("b/test_batch.bin")],
        [member("test_batch.bin", tarfile.LNKTYPE, "x"), member("data_batch_1.bin", tarfile.CHRTYPE)],
    ):
        with pytest.raises(SourceError):
            recognize(hostile_archive(tmp_path / "evil.tar.gz", *members), 0)
    assert not list(inside.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"inside", "evil.tar.gz"}


def test_bombs_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_FILE_BYTES", 100_000)
    bomb = hostile_archive(tmp_path / "bomb.tar.gz", member("test_batch.bin"), content=bytes(1_000_000))
    with pytest.raises(SourceError, match="exceeds the limits"):
        recognize(bomb, 0)
    write_idx(tmp_path / "dots", train=9, test=3)
    images = tmp_path / "dots/train-images-idx3-ubyte"
    monkeypatch.setattr(decompress, "FREE_BYTES", 100_000)
    images.with_name(images.name + ".gz").write_bytes(gzip.compress(bytes(1_000_000)))
    images.unlink()
    with pytest.raises(SourceError, match="expands to more than"):
        recognize(tmp_path / "dots", 0)
    monkeypatch.setattr(contents, "MAX_MEMBERS", 3)
    many = hostile_archive(tmp_path / "many.tar.gz", *(member(f"file{i}") for i in range(9)))
    with pytest.raises(SourceError, match="exceeds the limits"):
        recognize(many, 0)


def test_many_large_files_are_too_much_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(cifar10_binary(tmp_path / "cifar-10"), tmp_path / "cifar.tar.gz")
    assert recognize(path, 0).records() == 24
    monkeypatch.setattr(contents, "MAX_TOTAL_BYTES", 50_000)
    with pytest.raises(SourceError, match="exceeds the limits"):
        recognize(path, 0)


def test_a_garbled_sparse_file_is_told(tmp_path: Path) -> None:
    sparse = member("test_batch.bin")
    sparse.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "x,y"}
    with pytest.raises(SourceError):
        recognize(hostile_archive(tmp_path / "evil.tar.gz", member("first"), sparse), 0)


@pytest.mark.parametrize("keep", [10, 300, -20])
def test_cut_off_archives_are_told(tmp_path: Path, keep: int) -> None:
    path = archive(cifar10_binary(tmp_path / "cifar-10"), tmp_path / "cifar.tar.gz")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError):
        train_of(recognize(path, 0))


def test_folders_of_pictures(tmp_path: Path) -> None:
    for kind, color in (("cat", "red"), ("dog", "blue")):
        for number in range(3):
            picture(tmp_path / f"train/{kind}/{number}.JPEG", color=color)
        picture(tmp_path / f"val/{kind}/0.png", color=color)
    (tmp_path / "train/cat/notes.txt").write_text("not a picture")
    source = recognize(tmp_path, 16)
    assert source.class_names == ("cat", "dog")
    assert source.shape == (16, 16, 3)
    block = train_of(source)
    assert sorted(block.labels.tolist()) == [0, 0, 0, 1, 1, 1]
    assert block.labels.tolist() != sorted(block.labels.tolist()), "shuffled: any part is of all classes"
    for image, label in zip(block.images, block.labels, strict=True):
        assert image.mean(axis=(0, 1)).argmax() == (0 if label == 0 else 2)
    (test,) = source.test()
    assert test.labels.tolist() == [0, 1]
    assert source.counts() == (6, 2)


def test_pictures_are_seen_as_people_see_them(tmp_path: Path) -> None:
    left_half_white = Image.new("RGB", (60, 40))
    left_half_white.paste("white", (0, 0, 30, 40))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise: left becomes top
    left_half_white.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    turned = decode(tmp_path / "turned.jpg", 20)
    assert turned.shape == (20, 20, 3)
    assert turned[:6].mean() > 220
    assert turned[-6:].mean() < 30
    for mode, color, wanted in (
        ("L", 128, (128, 128, 128)),
        ("CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),
        ("P", 0, None),
        ("1", 1, (255, 255, 255)),
        ("I;16", 0x8000, (128, 128, 128)),
    ):
        path = tmp_path / f"{mode.replace(';', '')}.{'jpg' if mode == 'CMYK' else 'png'}"
        picture(path, mode=mode, color=color)
        found = decode(path, 12).mean(axis=(0, 1))
        assert wanted is None or np.abs(found - wanted).max() < 6, mode


def test_16_bit_gray_with_a_transparent_shade_keeps_the_others(tmp_path: Path) -> None:
    shades = np.full((12, 12), 0x4000, np.uint16)
    shades[:, 4:8], shades[:, 8:] = 0x8000, 0x8001  # transparent, and its neighbor
    Image.fromarray(shades).save(tmp_path / "gray.png", transparency=0x8000)
    with Image.open(tmp_path / "gray.png") as opened:
        assert (opened.mode, opened.info["transparency"]) == ("I;16", 0x8000)
    assert decode(tmp_path / "gray.png", 12)[0, [0, 4, 8], 0].tolist() == [64, 255, 128]


def test_damaged_pictures_are_named_and_the_others_kept(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        picture(tmp_path / f"cat/{name}.jpg")
    (tmp_path / "cat/b.jpg").write_bytes((tmp_path / "cat/b.jpg").read_bytes()[:300])
    (tmp_path / "cat/d.png").write_bytes(b"<svg/>")
    block = train_of(recognize(tmp_path, 16))
    assert len(block.labels) == 2
    assert sorted(each.file for each in block.damaged) == ["cat/b.jpg", "cat/d.png"]
    assert all(each.reason for each in block.damaged)


def test_a_picture_that_would_become_huge_is_damaged(tmp_path: Path) -> None:
    picture(tmp_path / "cat/a.png")
    Image.new("RGB", (30000, 1)).save(tmp_path / "cat/long.png")
    block = train_of(recognize(tmp_path, 256))
    assert len(block.labels) == 1
    assert [each.reason for each in block.damaged] == ["30000x1 pixels: aspect ratio too extreme for size 256"]


def _killed(*_: object) -> None:
    os._exit(9)


def test_a_decoder_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        picture(tmp_path / f"cat/{name}.jpg")
    monkeypatch.setattr(folders, "CHUNK", 1)
    monkeypatch.setattr(folders, "_decode_all", _killed)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(ClusterctlError, match="was killed"):
        train_of(recognize(tmp_path, 16))


def test_held_out_classes_must_be_known(tmp_path: Path) -> None:
    picture(tmp_path / "train/cat/a.png")
    picture(tmp_path / "val/cow/a.png")
    with pytest.raises(SourceError, match="classes that are missing in train/: cow"):
        recognize(tmp_path, 16)


@pytest.mark.parametrize("part", ["val", "test"])
def test_held_out_pictures_of_no_class_are_refused(tmp_path: Path, part: str) -> None:
    """As ImageNet's val/ is published: left out quietly, such a run would never be evaluated."""
    picture(tmp_path / "train/cat/a.png")
    picture(tmp_path / f"{part}/ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(SourceError, match=f"{part} has images .* such as ILSVRC2012_val_00000001.JPEG: ") as raised:
        recognize(tmp_path, 16)
    assert f"move each into {part}/CLASS/" in (raised.value.remedy or "")
    picture(tmp_path / f"{part}/cat/b.png")
    with pytest.raises(SourceError, match="outside class folders"):
        recognize(tmp_path, 16)


def test_a_test_folder_of_no_classes_does_not_matter_beside_val(tmp_path: Path) -> None:
    for name in ("train/cat/a.png", "val/cat/b.png", "test/c.png"):
        picture(tmp_path / name)
    assert recognize(tmp_path, 16).records() == 2


def test_empty_folders_of_held_out_pictures_are_told(tmp_path: Path) -> None:
    picture(tmp_path / "train/cat/a.png")
    for name in ("val", "val/cat", "val/cat/deep", "val/cow"):
        (tmp_path / name).mkdir()
        with pytest.raises(SourceError, match="val has no images") as raised:
            recognize(tmp_path, 16)
        assert raised.value.remedy == "put some into val/CLASS/, or move val/ away to import without held-out images"


def test_held_out_pictures_without_any_to_learn_from_are_told(tmp_path: Path) -> None:
    for name in ("training/cat/a.png", "val/cat/b.png"):
        picture(tmp_path / name)
    with pytest.raises(SourceError, match=r"has val/ but no train/"):
        recognize(tmp_path, 16)


@pytest.mark.parametrize("name", ["validation", "valid", "Val", "dev"])
def test_held_out_pictures_of_another_name_are_told(tmp_path: Path, name: str) -> None:
    """They would go unused, and the run would never be evaluated."""
    for path in ("train/cat/a.png", "train/dog/b.png", f"{name}/cat/c.png"):
        picture(tmp_path / path)
    with pytest.raises(SourceError, match=rf"has {name}/ next to train/") as raised:
        recognize(tmp_path, 16)
    assert raised.value.remedy == f"rename {name}/ to val/, or move it away to import without held-out images"
    (tmp_path / name).rename(tmp_path / "test")
    (tmp_path / name).mkdir()
    source = recognize(tmp_path, 16)
    assert source is not None
    assert source.counts() == (2, 1)


def test_a_class_without_a_picture_to_learn_from_is_refused(tmp_path: Path) -> None:
    for name in ("train/cat/a.png", "train/dog/a.png", "val/cat/a.png", "val/dog/a.png"):
        picture(tmp_path / name)
    (tmp_path / "val/dog/a.png").rename(tmp_path / "val/dog/a.txt")
    assert recognize(tmp_path, 16).counts() == (2, 1), "of a rare one none may be held out"
    (tmp_path / "train/dog/a.png").rename(tmp_path / "train/dog/a.txt")
    with pytest.raises(SourceError, match="train/dog has no images; ") as raised:
        recognize(tmp_path, 16)
    assert "move the folder away" in (raised.value.remedy or "")


def test_pictures_of_a_class_may_lie_deeper(tmp_path: Path) -> None:
    for name in ("cat/a.png", "cat/at home/b.png", "cat/at home/asleep/c.png", "cat/.cache/d.png", "dog/x/y/e.png"):
        picture(tmp_path / name)
    (tmp_path / "cat/at home/again").symlink_to(tmp_path / "cat")
    picture(tmp_path / "elsewhere.of/f.png")
    source = recognize(tmp_path, 16)
    assert source.class_names == ("cat", "dog", "elsewhere.of")
    assert sorted(train_of(source).labels.tolist()) == [0, 0, 0, 1, 2]


SORT = "sort the images into train/CLASS/ and val/CLASS/"
CALL = "rename the training folder to train/ and the held-out folder to val/"
MOVE = "if 2019 and 2020 are the classes, move all of them into HERE/train"
TOO_HIGH = {
    "ImageNet's folder around its own": (
        ["CLS-LOC/train/n01/a.png", "CLS-LOC/train/n02/b.png", "CLS-LOC/val/c.png"],
        "HERE/CLS-LOC would be the only class", "use HERE/CLS-LOC instead",
    ),
    "two folders around": (
        ["Data/CLS-LOC/train/n01/a.png", "Data/CLS-LOC/train/n02/b.png", "Data/CLS-LOC/val/n01/c.png"],
        "HERE/Data would be the only class", "use HERE/Data/CLS-LOC instead",
    ),
    "around, with only what is learned from": (
        ["CLS-LOC/train/n01/a.png"],
        "HERE/CLS-LOC has train/: ", "use HERE/CLS-LOC instead",
    ),
    "around, beside another": (
        ["pets/train/cat/a.png", "pets/val/cat/b.png", "more/c.png"],
        "HERE/pets has train/ and val/: ", "use HERE/pets instead",
    ),
    "around, and other names": (
        ["pets/Training/cat/a.png", "pets/TEST/cat/b.png", "more/c.png"],
        "HERE/pets has TEST/ and Training/: ", f"{CALL}, and use HERE/pets",
    ),
    "around the classes": (
        ["PetImages/cat/a.png", "PetImages/dog/b.png", "readme.png"],
        "HERE/PetImages would be the only class", "use HERE/PetImages instead",
    ),
    "around the classes, in train/": (
        ["train/images/cat/a.png", "train/images/dog/b.png", "val/cat/c.png"],
        "HERE/train/images would be the only class", "move the folders that are in HERE/train/images into HERE/train",
    ),
    "twice the same": (
        ["train/train/cat/a.png", "train/train/dog/b.png"],
        "HERE/train/train would be the only class", "move the folders that are in HERE/train/train into HERE/train",
    ),
    "other names": (
        ["training/cat/a.png", "training/dog/b.png", "validation/cat/c.png", "validation/dog/d.png"],
        "HERE has training/ and validation/: ", CALL,
    ),
    "capitals": (["Train/cat/a.png", "Val/cat/c.png"], "HERE has Train/ and Val/: ", CALL),
    "capitals, and no classes": (["Train/a.png", "Valid/c.png"], "HERE has Train/: ", f"move Train/ away, or {SORT}"),
    "pictures of no class": (
        ["cat/a.png", "dog/b.png", "test/c.png"],
        "HERE has test/: ", f"move test/ away, or {SORT}",
    ),
    "pictures, no class": (["train/train/a.png"], "HERE/train has train/: ", f"move train/ away, or {SORT}"),
    "classes outside": (
        ["cat/train/a.png", "cat/test/b.png", "dog/train/c.png", "dog/test/d.png"],
        "HERE/cat has test/ and train/: ", SORT,
    ),
    "held out deep in a class": (
        ["cat/a.png", "cat/more/of/test/b.png", "dog/c.png"],
        "HERE/cat/more/of has test/: ", f"move test/ away, or {SORT}",
    ),
    "parts": (
        ["2019/cat/a.png", "2019/dog/b.png", "2020/cat/c.png", "2020/cow/d.png", "2020/dog/e.png"],
        "HERE/2019 and 2020 have no images but share subfolder names, such as cat and dog: ",
        f"use HERE/2019 instead, or one folder with all images; {MOVE}",
    ),
    "parts, twice the same": (
        [f"seg_{part}/seg_{part}/{kind}/a.png" for part in ("a", "b") for kind in ("sea", "street")],
        "HERE/seg_a and seg_b have no images", "use HERE/seg_a/seg_a instead",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TOO_HIGH)
def test_a_folder_around_the_right_one_is_refused(tmp_path: Path, case: str) -> None:
    """Its classes would be those of a dataset that was not meant, and it would be learned without a warning."""
    names, message, remedy = TOO_HIGH[case]
    for name in names:
        picture(tmp_path / name)
    with pytest.raises(SourceError) as raised:
        recognize(tmp_path, 16)
    assert raised.value.message.startswith(message.replace("HERE", str(tmp_path)))
    assert (raised.value.remedy or "").startswith(remedy.replace("HERE", str(tmp_path)))
    assert raised.value.exit_code == 2


LEVELS_AS_MEANT = {
    "a tree of kinds": (["animal/cat/a.png", "animal/dog/b.png", "thing/car/c.png"], "animal thing"),
    "a tree with a name twice": (
        ["animal/cat/a.png", "animal/other/b.png", "thing/car/c.png", "thing/other/d.png"],
        "animal thing",
    ),
    "a tree with pictures at every level": (["n01/a.png", "n01/n011/b.png", "n02/n021/n0211/c.png"], "n01 n02"),
    "Tiny ImageNet": (["train/n01/images/a.png", "train/n02/images/b.png", "val/n01/images/c.png"], "n01 n02"),
    "its train/ alone": (["n01/images/a.png", "n02/images/b.png"], "n01 n02"),
    "the same folders in classes, in train/": (
        [f"train/{kind}/{place}/a.png" for kind in ("cat", "dog") for place in ("home", "wild")],
        "cat dog",
    ),
    "CIFAR-100's trains": (["train/bus/a.png", "train/train/b.png", "val/bus/c.png", "val/train/d.png"], "bus train"),
    "trains": (["Bus/a.png", "Train/b.png"], "Bus Train"),
    "trains in a tree": (["animal/a.png", "vehicle/bus/a.png", "vehicle/train/b.png"], "animal vehicle"),
    "tickets": (["valid/a.png", "invalid/b.png"], "invalid valid"),
    "names that only begin so": (["testbench/a.png", "valley/test tube/b.png"], "testbench valley"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEVELS_AS_MEANT)
def test_what_looks_like_a_folder_around_and_is_none(tmp_path: Path, case: str) -> None:
    names, classes = LEVELS_AS_MEANT[case]
    for name in names:
        picture(tmp_path / name)
    source = recognize(tmp_path, 16)
    assert (" ".join(source.class_names), sum(source.counts())) == (classes, len(names))


def test_the_folder_that_is_named_instead_will_do(tmp_path: Path) -> None:
    for name in ("CLS-LOC/train/n01/a.png", "CLS-LOC/train/n02/b.png", "CLS-LOC/val/n02/c.png"):
        picture(tmp_path / name)
    source = recognize(tmp_path / "CLS-LOC", 16)
    assert (source.class_names, source.counts()) == (("n01", "n02"), (2, 1))


def test_a_folder_that_a_class_has_twice_is_read_once(tmp_path: Path) -> None:
    for name in ("cat/own/a.png", "dog/a.png"):
        picture(tmp_path / name)
    for name in ("also", "too"):
        (tmp_path / "cat" / name).symlink_to(tmp_path / "cat/own")
    assert recognize(tmp_path, 16).counts() == (2, 0)


def test_pictures_that_are_not_read_are_named(tmp_path: Path) -> None:
    for name in ("cat/a.png", "cat/b.webp", "cat/deep/c.BMP", "loose.jpg"):
        picture(tmp_path / name)
    (tmp_path / "cat/gone.jpg").symlink_to("/nowhere/at all.jpg")
    source = recognize(tmp_path, 16)
    block = train_of(source)
    assert {each.file: each.reason for each in block.damaged} == {
        "loose.jpg": "not inside a class folder",
        "cat/b.webp": "unsupported format .webp; only JPEG and PNG are supported",
        "cat/deep/c.BMP": "unsupported format .bmp; only JPEG and PNG are supported",
        "cat/gone.jpg": "not a regular file",
    }
    assert (len(block.labels), source.records()) == (1, 5)


def test_a_class_of_pictures_that_are_not_read_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "cat/a.webp")
    with pytest.raises(SourceError, match=r"cat has no readable image; a\.webp: unsupported format") as raised:
        recognize(tmp_path, 16)
    assert raised.value.remedy == "convert its images to JPEG or PNG"


def test_a_folder_that_may_not_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "cat/a.png")
    picture(tmp_path / "cat/locked/b.png")
    scan = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        recognize(tmp_path, 16)


def test_what_is_no_dataset_is_told_with_what_would_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    for path in (tmp_path / "absent", tmp_path / "file", tmp_path):
        with pytest.raises(SourceError) as raised:
            recognize(path, 16)
        assert "CIFAR-10" in (raised.value.remedy or "")
        assert "train-images-idx3-ubyte and train-labels-idx1-ubyte" in (raised.value.remedy or "")
