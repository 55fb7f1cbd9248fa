"""`python -m phone_agent.core`: builds the core if need be, tries it, and says what it can use here."""

from __future__ import annotations

import sys

from phone_agent.contract.errors import AgentError
from phone_agent.core.library import isas, library
from phone_agent.core.trial import multiplies


def main() -> int:
    try:
        names = isas(library())
        wrong = [isa for isa in names if not multiplies(isa)]
    except AgentError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if wrong:
        sys.stderr.write(f"the core's kernels multiply wrong: {', '.join(wrong)}\n")
        return 1
    sys.stdout.write(", ".join(names) + "\n")
    return 0


sys.exit(main())
