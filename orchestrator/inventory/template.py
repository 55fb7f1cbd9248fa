"""Templates for names and addresses of a port range: 'p1-{port:02}', '10.77.1.{port+100}'."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(r"\{(?P<word>[^{}+:-]*)(?P<offset>[+-][0-9]{1,6})?(?P<pad>:0?[0-9])?\}")
ALLOWED = "{port}, {port:02}, {port+100} and {switch}"


def varies(template: str) -> bool:
    return any(match["word"] == "port" for match in _PLACEHOLDER.finditer(template))


def check(template: str) -> str:
    """The template itself; ValueError when a placeholder is not one of ours."""
    for match in _PLACEHOLDER.finditer(template):
        if match["word"] != "port" and (match["word"] != "switch" or match["offset"] or match["pad"]):
            raise ValueError(f"unknown placeholder {match[0]}; allowed: {ALLOWED}")
    rest = _PLACEHOLDER.sub("", template)
    if "{" in rest or "}" in rest:
        raise ValueError(f"'{template}' has an unmatched brace; allowed placeholders: {ALLOWED}")
    return template


def fill(template: str, switch: str, port: int) -> str:
    def value(match: re.Match[str]) -> str:
        if match["word"] == "switch":
            return switch
        width = int((match["pad"] or ":0")[1:])
        return f"{port + int(match['offset'] or 0):0{width}}"

    return _PLACEHOLDER.sub(value, template)
