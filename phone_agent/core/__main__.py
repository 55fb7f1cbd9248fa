"""`python -m phone_agent.core`: build the core if necessary, test it, and print the instruction sets usable here."""

from __future__ import annotations

import sys

from phone_agent.contract.errors import AgentError, error_line
from phone_agent.core.library import CoreError, isas, library
from phone_agent.core.smoke_test import gemm_is_exact


def main() -> int:
    try:
        names = isas(library())
        wrong = [isa for isa in names if not gemm_is_exact(isa)]
        if wrong:
            raise CoreError(f"the core's kernels give wrong results: {', '.join(wrong)}")
    except AgentError as error:
        sys.stderr.write(error_line(error) + "\n")
        return 1
    sys.stdout.write(", ".join(names) + "\n")
    return 0


sys.exit(main())
