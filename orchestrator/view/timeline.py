"""How much of a step is computing, and how much of it is waiting for the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from orchestrator.logs.trace import Shares
from orchestrator.view.console import note, out


def print_shares(shares: Sequence[Shares], path: Path, clock_error_s: float) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("rank", "phone", "steps", "step", "compute", "communication", "exposed"):
        table.add_column(name, justify="left" if name == "phone" else "right")
    for each in shares:
        seconds = (each.step_s, each.compute_s, each.communication_s)
        shown = [f"{value * 1e3:.1f} ms" for value in seconds]
        table.add_row(str(each.rank), each.phone, str(each.steps), *shown, f"{each.exposed:.1%}")
    out.print(table)
    note("exposed: of a step, what computing waited for communication; the rest of it went on beside computing")
    note(f"{path}: open it in chrome://tracing or ui.perfetto.dev; clocks agree to {clock_error_s * 1e3:.1f} ms")
