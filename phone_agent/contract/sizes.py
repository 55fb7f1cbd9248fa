"""Sizes in bytes as people write them: 2.8GB, 512 MB, 3GiB. A number without a unit is in bytes."""

from __future__ import annotations

import re

from phone_agent.contract.errors import BadRequestError

UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("", 1000), ("B", 1000), ("IB", 1024))
}
FLOAT = 4  # bytes per float32: the type of values, gradients and arithmetic
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2].upper() not in UNITS:
        raise BadRequestError(f"'{text}' is not an amount of memory; write it like 2.8GB or 512MB")
    amount = int(float(match[1]) * UNITS[match[2].upper()])
    if amount < 1:
        raise BadRequestError(f"'{text}' is zero; give a positive amount of memory")
    return amount


def format_size(size: int, of_gb: int = 2, of_mb: int = 1) -> str:
    """In GB or MB, as `parse_bytes` reads it. `of_gb`, `of_mb`: number of decimals."""
    return f"{size / 1e9:.{of_gb}f} GB" if size >= 1e9 else f"{size / 1e6:.{of_mb}f} MB"


def format_distinct_sizes(one: int, other: int) -> tuple[str, str]:
    """Two sizes with enough decimals to tell them apart."""
    shown = format_size(one), format_size(other)
    for more in range(7):
        shown = format_size(one, 2 + more, more), format_size(other, 2 + more, more)
        if shown[0] != shown[1]:
            break
    return shown
