"""`python -m phone_agent.core`: builds the core if need be, and says which it is and what it can use here."""

from __future__ import annotations

import sys

from phone_agent.core import library
from phone_agent.errors import AgentError


def main() -> int:
    try:
        core = library.library()
    except AgentError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{core._name}: {', '.join(library.isas(core))}\n")  # noqa: SLF001 - ctypes' own, documented
    return 0


sys.exit(main())
