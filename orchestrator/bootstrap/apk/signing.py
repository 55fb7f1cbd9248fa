"""The signer of an APK: the certificate in its signing block (APK Signature Scheme v2 and v3).

Not verified here: the sha256 of the file is, and Android verifies the signature when it installs the APK.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

_MAGIC: Final = b"APK Sig Block 42"
_SCHEMES: Final = (0xF05368C0, 0x7109871A)  # v3, v2
_END_OF_DIRECTORY: Final = b"PK\x05\x06"
_LONGEST_COMMENT: Final = 0xFFFF

# com.termux.shared.termux.TermuxConstants
_SOURCES: Final = {
    "b6da01480eefd5fbf2cd3771b8d1021ec791304bdd6c4bf41d3faabad48ee5e1": "GitHub",
    "228fb2cfe90831c1499ec3ccaf61e96e8e1ce70766b9474672ce427334d41c42": "F-Droid",
    "738f0a30a04d3c8a1be304af18d0779bcf3ea88fb60808f657a3521861c2ebf9": "the Play Store",
    "f7a038eb551f1be8fdf388686b784abab4552a5d82df423e3d8f1b5cbe1c69ae": "the Termux developers",
}


def source(certificate: str) -> str:
    """The name of the signer."""
    return _SOURCES.get(certificate, f"an unknown signer ({certificate[:16]}…)")


def certificate(data: bytes) -> str:
    """The sha256 of the first signer's certificate. Raises ValueError if there is none."""
    try:
        blocks = dict(_pairs(_signing_block(data)))
        signers = next(blocks[scheme] for scheme in _SCHEMES if scheme in blocks)
        signed = _prefixed(_prefixed(_prefixed(signers)))  # of the first of all signers
        digests = _prefixed(signed)
        certificates = _prefixed(signed[4 + len(digests) :])
        return hashlib.sha256(_prefixed(certificates)).hexdigest()
    except StopIteration:
        raise ValueError("not signed (no APK Signature Scheme v2 or v3)") from None
    except (struct.error, IndexError) as error:
        raise ValueError(f"its signing block is damaged: {error}") from error


def _signing_block(data: bytes) -> bytes:
    """It precedes the central directory of the zip file."""
    end = data.rfind(_END_OF_DIRECTORY, max(0, len(data) - 22 - _LONGEST_COMMENT))
    if end < 0:
        raise ValueError("not a zip file")
    (directory,) = struct.unpack_from("<I", data, end + 16)
    if data[directory - 16 : directory] != _MAGIC:
        raise ValueError("not signed (no APK signing block)")
    (size,) = struct.unpack_from("<Q", data, directory - 24)
    return data[directory - size : directory - 24]


def _pairs(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(block):
        length, number = struct.unpack_from("<QI", block, at)
        yield number, block[at + 12 : at + 8 + length]
        at += 8 + max(length, 4)


def _prefixed(data: bytes) -> bytes:
    (length,) = struct.unpack_from("<I", data)
    if length > len(data) - 4:
        raise ValueError("its signing block is damaged")
    return data[4 : 4 + length]
