"""Minimal APK files: a zip with a binary manifest, native code, and a signing block."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

GITHUB = b"the certificate of one signer"
FDROID = b"the certificate of another signer"
ACTIVITIES = {
    "com.termux": ".app.TermuxActivity",
    "com.termux.api": ".activities.TermuxAPIMainActivity",
    "com.termux.boot": ".BootActivity",
}
_IDS = {"name": 0x01010003, "sharedUserId": 0x0101000B, "debuggable": 0x0101000F, "versionName": 0x0101021C}
_NONE = 0xFFFFFFFF


def manifest(package: str, *, debuggable: bool = True, shared_user: str = "com.termux") -> str:
    return f"""<manifest package="{package}" versionName="0.118.3" sharedUserId="{shared_user}">
      <uses-permission name="android.permission.INTERNET"/>
      <application {'debuggable="true"' if debuggable else ""}>
        <activity name=".Other"><intent-filter><action name="android.intent.action.VIEW"/></intent-filter></activity>
        <activity name="{ACTIVITIES.get(package, ".Main")}"><intent-filter>
          <action name="android.intent.action.MAIN"/>
        </intent-filter></activity>
      </application></manifest>"""


def binary_xml(text: str, *, utf8: bool = True) -> bytes:
    """Attribute names with resource ids come first in the pool, and may be empty, as some tools write them."""
    root = ET.fromstring(text)  # noqa: S314  (written above)
    pool = list(_IDS)
    for element in root.iter():
        for word in (element.tag, *element.attrib, *element.attrib.values()):
            if word not in pool:
                pool.append(word)
    stripped = ["" if word in _IDS else word for word in pool]
    resources = struct.pack(f"<{len(_IDS)}I", *_IDS.values())
    body = _strings(stripped, utf8=utf8) + _chunk(0x0180, resources) + _elements(root, pool)
    return struct.pack("<HHI", 0x0003, 8, 8 + len(body)) + body


def _chunk(kind: int, body: bytes, header: int = 8, head: bytes = b"") -> bytes:
    return struct.pack("<HHI", kind, header, 8 + len(head) + len(body)) + head + body


def _strings(pool: list[str], *, utf8: bool) -> bytes:
    data, offsets = b"", []
    for word in pool:
        offsets.append(len(data))
        if utf8:
            raw = word.encode()
            data += bytes([len(word), len(raw)]) + raw + b"\0"
        else:
            data += struct.pack("<H", len(word)) + word.encode("utf-16-le") + b"\0\0"
    data += b"\0" * (-len(data) % 4)
    head = struct.pack("<5I", len(pool), 0, 0x100 if utf8 else 0, 28 + 4 * len(pool), 0)
    return _chunk(0x0001, struct.pack(f"<{len(pool)}I", *offsets) + data, 28, head)


def _elements(element: ET.Element, pool: list[str]) -> bytes:
    attributes = b""
    for name, value in element.attrib.items():
        if value == "true":
            attributes += struct.pack("<IIIHBBI", _NONE, pool.index(name), _NONE, 8, 0, 0x12, _NONE)
        else:
            text = pool.index(value)
            attributes += struct.pack("<IIIHBBI", _NONE, pool.index(name), text, 8, 0, 0x03, text)
    head = struct.pack("<II", 1, _NONE)
    start = struct.pack("<IIHHHHHH", _NONE, pool.index(element.tag), 20, 20, len(element.attrib), 0, 0, 0)
    end = struct.pack("<II", _NONE, pool.index(element.tag))
    inner = b"".join(_elements(child, pool) for child in element)
    return _chunk(0x0102, start + attributes, 16, head) + inner + _chunk(0x0103, end, 16, head)


def sign(archive: bytes, certificate: bytes, scheme: int = 0x7109871A) -> bytes:
    def prefixed(*parts: bytes) -> bytes:
        body = b"".join(parts)
        return struct.pack("<I", len(body)) + body

    more = struct.pack("<II", 28, 0x7FFFFFFF) if scheme == 0xF05368C0 else prefixed()
    signed = prefixed(prefixed(prefixed(b"digest")), prefixed(prefixed(certificate)), more)
    value = prefixed(prefixed(signed, prefixed(), prefixed(b"key")))
    pairs = struct.pack("<QI", 4 + 7, 0x42726577) + b"padding" + struct.pack("<QI", 4 + len(value), scheme) + value
    size = struct.pack("<Q", len(pairs) + 24)
    block = size + pairs + size + b"APK Sig Block 42"
    end = archive.rindex(b"PK\x05\x06")
    (directory,) = struct.unpack_from("<I", archive, end + 16)
    tail = bytearray(archive[directory:])
    struct.pack_into("<I", tail, end - directory + 16, directory + len(block))
    return archive[:directory] + block + bytes(tail)


def apk(
    package: str,
    *,
    certificate: bytes | None = GITHUB,
    debuggable: bool = True,
    shared_user: str = "com.termux",
    abi: str = "arm64-v8a",
    scheme: int = 0x7109871A,
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        text = manifest(package, debuggable=debuggable, shared_user=shared_user)
        archive.writestr("AndroidManifest.xml", binary_xml(text, utf8=package != "com.termux.api"))
        archive.writestr("classes.dex", package.encode() * 20000)
        if package == "com.termux":
            archive.writestr(f"lib/{abi}/libtermux-bootstrap.so", b"")
    return sign(buffer.getvalue(), certificate, scheme) if certificate else buffer.getvalue()


def write_folder(directory: Path, **files: bytes) -> Path:
    """Write APKs and their SHA256SUMS; by default the three valid ones."""
    directory.mkdir(parents=True, exist_ok=True)
    chosen = files or {name: apk(package) for name, package in PACKAGES.items()}
    for name, data in chosen.items():
        (directory / f"{name}.apk").write_bytes(data)
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}.apk\n" for name, data in chosen.items()]
    (directory / "SHA256SUMS").write_text("".join(sums))
    return directory


PACKAGES = {"termux": "com.termux", "api": "com.termux.api", "boot": "com.termux.boot"}
