"""Replacement of siphash24 for pytools on phones: the original is a C extension with its own build system.

pytools uses the hashes only as names of cache entries on the phone.
"""

from __future__ import annotations

from hashlib import blake2b


class siphash13:  # noqa: N801 - name of the original; a class, because pytools stores it as a class attribute
    def __new__(cls, data: bytes = b"") -> blake2b:  # type: ignore[misc]
        return blake2b(data, digest_size=8)
