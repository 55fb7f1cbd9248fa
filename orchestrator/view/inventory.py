"""Results of `inventory check`, in the style of a compiler: the message, and the line it is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from orchestrator.errors import InventoryError
from orchestrator.inventory import fold
from orchestrator.inventory.document import read_text
from orchestrator.inventory.model import Cluster, Phone, Uplink
from orchestrator.inventory.ring_traffic import slow_uplinks
from orchestrator.text import count_of, one_line
from orchestrator.view.console import next_step, out, print_json, warn


def print_problems(error: InventoryError, *, json: bool) -> None:
    if json:
        problems = [{"line": problem.line, "message": problem.message} for problem in error.problems]
        print_json({"inventory": str(error.source), "ok": False, "problems": problems})
        return
    lines = _lines(error.source)
    for problem in error.problems:
        place = f"{error.source}:{problem.line}: " if problem.line else f"{error.source}: "
        out.print(Text.assemble((place, "bold"), problem.message), soft_wrap=True)
        if 0 < problem.line <= len(lines):
            out.print(Text(f"{problem.line:>5} │ {one_line(lines[problem.line - 1], 90)}", "dim"), soft_wrap=True)
    out.print(Text(count_of(error.problems, "problem"), "bold red"))


def _lines(source: Path) -> list[str]:
    """The file again, for quoting. A pipe can be read only once, so its lines are not quoted."""
    try:
        return read_text(source).split("\n") if source.is_file() else []
    except InventoryError:
        return []


def print_summary(cluster: Cluster, phones: Sequence[Phone], *, json: bool) -> None:
    warnings = [_slow_uplink(*slow, cluster) for slow in slow_uplinks(cluster)]
    if json:
        print_json(_summary(cluster, phones) | {"warnings": warnings})
        return
    counted = f"{count_of(len(cluster), 'phone')} on {count_of(cluster.switches, 'switch')}"
    out.print(Text.assemble(("ok ", "bold green"), f"{cluster.source}: {counted}"), soft_wrap=True)
    if len(phones) < len(cluster):
        out.print(f"selected: {len(phones)} ({fold(phones)})", soft_wrap=True)
    for warning in warnings:
        warn(warning)
    next_step("clusterctl inventory show")


def _summary(cluster: Cluster, phones: Sequence[Phone]) -> dict[str, Any]:
    return {
        "inventory": str(cluster.source),
        "ok": True,
        "problems": [],
        "cluster": cluster.name,
        "switches": len(cluster.switches),
        "phones": len(cluster),
        "selected": len(phones),
    }


def _slow_uplink(switch: str, uplink: Uplink, cluster: Cluster) -> str:
    return (
        f"the uplink from {switch} to {uplink.to} ({uplink.rate}) is slower than the phone links ({cluster.rate}): "
        "it will limit the ring allreduce"
    )
