"""APKs are parsed and verified before any phone is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bootstrap.apk import axml, read_apks, signing
from orchestrator.errors import UsageError
from tests.orchestrator.bootstrap.apks import FDROID, apk, binary_xml, manifest, sign, write_folder

RIGHT = {"termux": apk("com.termux"), "api": apk("com.termux.api"), "boot": apk("com.termux.boot")}


def refusal(directory: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_apks(directory)
    return caught.value.message


def test_valid_apks(tmp_path: Path) -> None:
    found = read_apks(write_folder(tmp_path, **RIGHT))
    assert [one.package for one in found] == ["com.termux", "com.termux.api", "com.termux.boot"]
    assert found.termux.component == "com.termux/com.termux.app.TermuxActivity"
    assert (found.termux.version, found.termux.abis) == ("0.118.3", frozenset({"arm64-v8a"}))
    assert len({one.certificate for one in found}) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boot": None}, r"no APK of Termux:Boot \(com.termux.boot\)"),
        ({"boot": apk("com.termux.boot", certificate=FDROID)}, "different signers"),
        ({"termux": apk("com.termux", debuggable=False)}, "termux.apk: not debuggable"),
        ({"api": apk("com.termux.api", shared_user="other")}, "does not share the user id of Termux"),
        ({"api": apk("com.termux.api", certificate=None)}, "api.apk: not signed"),
        ({"extra": apk("com.termux.styling")}, "extra.apk: is 'com.termux.styling', not one of Termux"),
        ({"extra": apk("com.termux", abi="x86_64")}, "several APKs of Termux: extra.apk, termux.apk; keep one"),
        ({"boot": b"PK nonsense"}, "boot.apk: not an APK"),
        ({"boot": RIGHT["boot"][:-700]}, "boot.apk: not an APK"),
    ],
)
def test_invalid_apks_are_refused(tmp_path: Path, changes: dict[str, bytes | None], message: str) -> None:
    files = {name: data for name, data in {**RIGHT, **changes}.items() if data is not None}
    write_folder(tmp_path, **files)
    with pytest.raises(UsageError, match=message):
        read_apks(tmp_path)


def test_a_changed_byte_is_detected(tmp_path: Path) -> None:
    path = write_folder(tmp_path, **RIGHT) / "termux.apk"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert "termux.apk: its sha256 is" in refusal(tmp_path)
    assert "download it again" in refusal(tmp_path)


def test_problems_of_sha256sums_are_reported(tmp_path: Path) -> None:
    assert "no such directory" in refusal(tmp_path / "none")
    directory = write_folder(tmp_path, **RIGHT)
    sums = directory / "SHA256SUMS"
    lines = sums.read_text().splitlines()
    sums.write_text("\n".join(lines[1:]))
    assert "termux.apk: not listed in SHA256SUMS; its sha256 is" in refusal(directory)
    sums.write_text("\n".join([*lines, f"{'0' * 64}  more.apk"]))
    assert "more.apk: listed in SHA256SUMS, but missing" in refusal(directory)
    sums.write_text("md5 of it\n")
    assert "SHA256SUMS:1: expected 64 hex digits" in refusal(directory)
    sums.unlink()
    assert "SHA256SUMS cannot be read" in refusal(directory)


@pytest.mark.parametrize("scheme", [0x7109871A, 0xF05368C0], ids=["v2", "v3"])
def test_both_signature_schemes(scheme: int) -> None:
    expected = signing.certificate(apk("com.termux"))
    assert signing.certificate(apk("com.termux", scheme=scheme)) == expected
    assert signing.certificate(apk("com.termux", certificate=FDROID)) != expected


@pytest.mark.parametrize("utf8", [True, False])
def test_manifest_in_both_encodings(utf8: bool) -> None:  # noqa: FBT001
    root = axml.parse(binary_xml(manifest("com.termux"), utf8=utf8))
    assert root.text("package") == "com.termux"
    (application,) = root.find("application")
    assert application.attributes["debuggable"]
    assert [one.text("name") for one in root.find("application", "activity")] == [".Other", ".app.TermuxActivity"]


@settings(max_examples=50)
@given(data=st.data())
def test_damaged_files_raise_only_value_error(data: st.DataObject) -> None:
    """A malicious manifest or archive is refused or misread, but never crashes."""
    whole = data.draw(st.sampled_from([binary_xml(manifest("com.termux")), RIGHT["boot"]]))
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + data.draw(st.integers(0, 8)) :]
    for read in (axml.parse, signing.certificate):
        try:
            read(broken)
        except ValueError:
            continue


def test_a_signed_zip_is_still_valid() -> None:
    import io
    import zipfile

    archive = zipfile.ZipFile(io.BytesIO(sign(apk("com.termux", certificate=None), b"x")))
    assert archive.testzip() is None
