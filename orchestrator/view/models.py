"""Models: tables, or JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from orchestrator.format import format_shape
from orchestrator.text import count_of
from orchestrator.view.console import next_step, out
from orchestrator.view.table import Column, FitTable, fact_table, print_table
from phone_agent.contract.sizes import format_size

if TYPE_CHECKING:
    from phone_agent.api.models import Block, ModelReport, Overview

MIB = 2**20


def print_overviews(found: Iterable[Overview]) -> None:
    print_table(out, render_overviews(found))
    next_step("clusterctl models show resnet50 --batch 32", "layers and memory")


def render_overviews(found: Iterable[Overview]) -> FitTable:
    table = FitTable(
        "model",
        Column("parameters", right=True),
        Column("MiB", right=True, priority=1),
        Column("tensors", right=True, priority=3),
        Column("input", right=True),
        Column("GFLOP", right=True),
        Column("", wrap=True, priority=2, style="dim"),
    )
    for one in found:
        numbers = (f"{one.parameters:,}", f"{one.size_bytes / MIB:.2f}", str(one.chunks), format_shape(one.shape))
        table.add_row(one.name, *numbers, f"{one.forward_flops / 1e9:.2f}", one.description)
    return table


def overview_document(one: Overview) -> dict[str, Any]:
    return {**asdict(one), "size_bytes": one.size_bytes}


def print_sheet(sheet: ModelReport) -> None:
    one, memory = sheet.overview, sheet.memory
    out.print(Text.assemble((one.name, "bold"), f"  {one.description}"))
    print_table(out, render_blocks(sheet.blocks))
    chunks = f"{one.parameters:,} in {count_of(one.chunks, 'tensor')}, {one.size_bytes / MIB:.2f} MiB"
    work = f"{one.forward_flops / 1e9:.2f} GFLOP per image forward, {sheet.training_flops / 1e9:.2f} with backward"
    facts = [
        ("input", f"{format_shape(one.shape)}, {one.classes} classes"),
        ("parameters", chunks),
        ("compute", work),
        (f"batch {memory.batch}", f"{format_size(memory.total)} of memory: {_parts(sheet)}"),
        (f"in {format_size(sheet.budget_bytes)}", f"batch {memory.batch} {_fits(sheet)}"),
        ("", f"largest batch: {_largest(sheet)}"),
    ]
    print_table(out, fact_table(facts))
    next_step(f"clusterctl launch --model {one.name} --batch auto --dry-run")


def sheet_document(sheet: ModelReport) -> dict[str, Any]:
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


def render_blocks(blocks: Iterable[Block]) -> FitTable:
    table = FitTable(
        "block",
        Column("output", right=True),
        Column("parameters", right=True),
        Column("MFLOP", right=True, priority=1),
        Column("layers", wrap=True, priority=2, style="dim"),
    )
    for block in blocks:
        name = block.name if block.times == 1 else f"{block.name} to {block.last.rpartition('.')[2]}"
        each = "" if block.times == 1 else f"{block.times} x: "
        numbers = (
            format_shape(block.shape),
            f"{block.parameters * block.times:,}",
            f"{block.flops * block.times / 1e6:,.1f}",
        )
        table.add_row(name, *numbers, each + block.layers)
    return table


def _parts(sheet: ModelReport) -> str:
    """Largest first; parts below one percent are left out."""
    memory = sheet.memory
    state = memory.values + memory.gradients + memory.momenta + memory.statistics
    parts = {
        "fp16 activations" if sheet.half else "activations": memory.arena + memory.vectors,
        "weights, gradients and momenta": state,
        "workspace": memory.workspace,
        "images": memory.images,
        "Python": memory.process,
    }
    shown = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {format_size(size)}" for name, size in shown if size > memory.total / 100)


def _fits(sheet: ModelReport) -> str:
    if sheet.within is None:
        return "does not fit"
    twice = sheet.within.recomputed
    how = f"by recomputing {count_of(twice, 'layer')}" if twice else "without recomputation"
    return f"fits {how}: {format_size(sheet.within.total)}"


def _largest(sheet: ModelReport) -> str:
    plain, again = sheet.largest_batch, sheet.largest_batch_recomputing
    if not again:
        return "none: not even one image fits"
    return f"{plain}, or {again} with recomputed convolutions" if plain else f"{again}, with recomputed convolutions"
