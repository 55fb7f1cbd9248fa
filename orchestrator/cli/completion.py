"""Shell completion of phone and switch names."""

from __future__ import annotations

import re


def complete_limit(incomplete: str) -> list[str]:
    """Completes the last term of a selector; silent when there is no inventory to look into."""
    from orchestrator.cli.session import find_inventory
    from orchestrator.errors import ClusterctlError
    from orchestrator.inventory import load

    try:
        cluster = load(find_inventory(None))
    except ClusterctlError:
        return []
    done, last = re.fullmatch(r"(.*?)([^,&!]*)", incomplete, re.DOTALL).groups()  # type: ignore[union-attr]
    words = ["@failed", *(switch.name for switch in cluster.switches), *(phone.name for phone in cluster)]
    return [done + word for word in words if word.startswith(last)]
