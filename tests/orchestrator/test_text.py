from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.text import one_line


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain words", "plain words"),
        ("température 41 °C ▲", "température 41 °C ▲"),
        ("a\tb", "a b"),
        ("red \x1b[31mtext", "red \\x1b[31mtext"),
        ("title \x1b]0;owned\x07", "title \\x1b]0;owned\\x07"),
        ("two\nlines\r\n", "two\\x0alines\\x0d\\x0a"),
        ("\u202eturned", "\\u202eturned"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("para\u2029graph", "para\\u2029graph"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(raw: str, shown: str) -> None:
    assert one_line(raw) == shown


@given(st.text(max_size=300), st.integers(min_value=1, max_value=80))
def test_any_text_becomes_one_harmless_bounded_line(raw: str, limit: int) -> None:
    shown = one_line(raw, limit)
    assert len(shown) <= limit
    assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in shown)


def test_a_cut_line_says_so() -> None:
    assert one_line("x" * 50, 10) == "xxxxxxxxx…"
