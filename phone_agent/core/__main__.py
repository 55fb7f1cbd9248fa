"""`python -m phone_agent.core`: build the core if necessary, test it, and print the instruction sets usable here."""

from __future__ import annotations

import sys

from phone_agent.contract.errors import AgentError
from phone_agent.core.library import isas, library
from phone_agent.core.smoke_test import gemm_is_exact


def main() -> int:
    try:
        names = isas(library())
        wrong = [isa for isa in names if not gemm_is_exact(isa)]
    except AgentError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if wrong:
        sys.stderr.write(f"the core's kernels give wrong results: {', '.join(wrong)}\n")
        return 1
    sys.stdout.write(", ".join(names) + "\n")
    return 0


sys.exit(main())
