"""Removes identifiers and keys from a document that will be shared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

HIDDEN: Final = "(hidden)"
_MAC: Final = re.compile(r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b")
_IMEI: Final = re.compile(r"\b[0-9]{15}\b")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
)
_PUBLIC_KEY: Final = re.compile(r"\bAAAA[0-9A-Za-z+/]{32,}={0,2}")
_PATTERNS: Final = (_PRIVATE_KEY, _PUBLIC_KEY, _MAC, _IMEI)


def redact(document: Any, secrets: Iterable[str] = ()) -> Any:
    """Replaces keys, MAC addresses, IMEIs and the given secrets in every string and every key of the document."""
    present = tuple(filter(None, secrets))
    if isinstance(document, str):
        return _mask(document, present)
    if isinstance(document, dict):
        return {_mask(str(name), present): redact(value, present) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [redact(value, present) for value in document]
    return document


def _mask(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = re.sub(re.escape(secret), HIDDEN, text, flags=re.IGNORECASE)
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    return text
