"""MkDocs hook: turn links to files of the repository into code, because the site holds only the pages."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./){2,}[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _OUTSIDE.sub(lambda link: link[1] if link[1].startswith("`") else f"`{link[1]}`", markdown)
