"""siphash24 as pytools calls it, on phones: the real one is a C extension with a build system of its own.

What pytools hashes names entries of caches on the phone itself, nothing else.
"""

from __future__ import annotations

from hashlib import blake2b


class siphash13:  # noqa: N801 - its name; a class, since pytools keeps it as an attribute of one
    def __new__(cls, data: bytes = b"") -> blake2b:  # type: ignore[misc]
        return blake2b(data, digest_size=8)
