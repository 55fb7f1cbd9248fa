"""Networks, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from orchestrator.text import count_of
from orchestrator.view.console import next_step, out
from phone_agent.contract.sizes import readable

if TYPE_CHECKING:
    from phone_agent.api.models import Block, Overview, Sheet

MIB = 2**20


def print_overviews(found: Iterable[Overview]) -> None:
    table = _table("model", ("parameters", "MiB", "chunks", "input", "GFLOP"), "")
    for one in found:
        numbers = (f"{one.parameters:,}", f"{one.size_bytes / MIB:.2f}", str(one.chunks), times(one.shape))
        table.add_row(one.name, *numbers, f"{one.forward_flops / 1e9:.2f}", _cut(one.description))
    out.print(table)
    next_step("clusterctl models show resnet50 --batch 32", "layers and memory")


def overview_document(one: Overview) -> dict[str, Any]:
    return {**asdict(one), "size_bytes": one.size_bytes}


def print_sheet(sheet: Sheet) -> None:
    one, memory = sheet.overview, sheet.memory
    out.print(Text.assemble((one.name, "bold"), f"  {one.description}"))
    out.print(_blocks(sheet.blocks))
    facts = _facts()
    facts.add_row("input", f"{times(one.shape)}, {one.classes} classes")
    chunks = f"{one.parameters:,} in {count_of(one.chunks, 'tensor')}, {one.size_bytes / MIB:.2f} MiB"
    facts.add_row("parameters", chunks)
    work = f"{one.forward_flops / 1e9:.2f} GFLOP an image, {sheet.training_flops / 1e9:.2f} with backward"
    facts.add_row("work", work)
    facts.add_row(f"batch {memory.batch}", f"{readable(memory.total)} of memory: {_parts(sheet)}")
    facts.add_row(f"in {readable(sheet.budget_bytes)}", f"batch {memory.batch} {_fits(sheet)}")
    facts.add_row("", f"largest: {_largest(sheet)}")
    out.print(facts)


def sheet_document(sheet: Sheet) -> dict[str, Any]:
    from phone_agent.api.models import node_flops

    layers = [
        {
            "name": node.name,
            "type": type(node.layer).__name__,
            "inputs": ["image" if feed < 0 else sheet.graph.nodes[feed].name for feed in node.inputs],
            "shape": list(node.shape),
            "parameters": sum(parameter.size for parameter in node.parameters),
            "flops": node_flops(node),
        }
        for node in sheet.graph.nodes
    ]
    return {
        **overview_document(sheet.overview),
        "training_flops": sheet.training_flops,
        "threads": sheet.threads,
        "backend": sheet.backend,
        "half": sheet.half,
        "memory": {**asdict(sheet.memory), "total": sheet.memory.total},
        "budget_bytes": sheet.budget_bytes,
        "fits": sheet.within is not None,
        "memory_in_budget": None if sheet.within is None else {**asdict(sheet.within), "total": sheet.within.total},
        "largest_batch": sheet.largest_batch,
        "largest_batch_recomputing": sheet.largest_batch_recomputing,
        "layers": layers,
    }


def times(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _blocks(blocks: Iterable[Block]) -> Table:
    table = _table("block", ("output", "parameters", "MFLOP"), "made of")
    for block in blocks:
        name = block.name if block.times == 1 else f"{block.name} to {block.last.rpartition('.')[2]}"
        each = "" if block.times == 1 else f"{block.times} times: "
        numbers = (times(block.shape), f"{block.parameters * block.times:,}", f"{block.flops * block.times / 1e6:,.1f}")
        table.add_row(name, *numbers, Text(each + block.layers, style="dim"))
    return table


def _parts(sheet: Sheet) -> str:
    """Largest first; what is less than a hundredth is not worth a word."""
    memory = sheet.memory
    state = memory.values + memory.gradients + memory.momenta + memory.statistics
    parts = {
        "activations in fp16" if sheet.half else "activations": memory.arena + memory.vectors,
        "weights, gradients and momenta": state,
        "workspace": memory.workspace,
        "images": memory.images,
        "Python": memory.process,
    }
    shown = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {readable(size)}" for name, size in shown if size > memory.total / 100)


def _fits(sheet: Sheet) -> str:
    if sheet.within is None:
        return "does not fit"
    twice = sheet.within.recomputed
    how = f"{count_of(twice, 'layer')} computed twice" if twice else "nothing computed twice"
    return f"fits with {how}: {readable(sheet.within.total)}"


def _largest(sheet: Sheet) -> str:
    plain, again = sheet.largest_batch, sheet.largest_batch_recomputing
    if not again:
        return "not even one image"
    return (
        f"a batch of {plain} with no convolution computed twice, of {again} with some"
        if plain
        else f"a batch of {again}, with convolutions computed twice"
    )


def _cut(text: str) -> Text:
    """One line, whatever the width of the terminal."""
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _facts() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table


def _table(first: str, numbers: tuple[str, ...], last: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(last)
    return table
