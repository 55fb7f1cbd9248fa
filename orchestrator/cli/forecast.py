"""`clusterctl forecast`: what training would take on a rack, before anything runs there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.agent_errors import engine_errors
from orchestrator.cli.completion import complete_model
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.plan.forecast.forecast import Rack

AUTO, AS_PUBLISHED = "auto", "paper"
MOST_PHONES = 100_000


def forecast(
    model: Annotated[
        list[str] | None,
        typer.Option(help="May be given more than once. Default: the paper's ten.", autocompletion=complete_model),
    ] = None,
    batch: Annotated[
        str, typer.Option(help="Images a phone and step: a number, auto (as many as fit), or paper (its Table I).")
    ] = AUTO,
    memory: Annotated[str | None, typer.Option(help="Of a phone. Default: 2.8GB.", show_default=False)] = None,
    images_per_s: Annotated[
        float | None,
        typer.Option(
            help="That one of your phones computes, as bench device or tune measured. Default: a modelled Galaxy S10+.",
            show_default=False,
            min=1e-6,
        ),
    ] = None,
    algorithm: Annotated[str, typer.Option(help="ring, hierarchical or auto.")] = AUTO,
    group: Annotated[
        int, typer.Option(help="Most phones of a hierarchy's groups. 0: all of a switch; with auto, the best.", min=0)
    ] = 0,
    wire: Annotated[str, typer.Option(help="fp32, fp16, bf16, int8 or auto.")] = "fp32",
    overlap: Annotated[bool, typer.Option(help="Communicate beside computing, or after it.")] = True,
    phones: Annotated[
        int | None,
        typer.Option(help="So many of them, instead of the inventory's.", min=1, max=MOST_PHONES, show_default=False),
    ] = None,
    switches: Annotated[int, typer.Option(help="With --phones: how many they share.", min=1)] = 1,
    rate: Annotated[str, typer.Option(help="With --phones: of a phone's cable.")] = "1gbit",
    uplink: Annotated[str, typer.Option(help="With --phones: of the cables between switches.")] = "1gbit",
    latency_ms: Annotated[
        float, typer.Option(help="From phone to phone, before anything arrives: an estimate.", min=0.0, max=1000.0)
    ] = 0.5,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell how long a training step would take on the rack, and how much of it would be computing. Modelled."""
    from orchestrator.plan.forecast import published
    from orchestrator.plan.forecast.device_model import phone
    from orchestrator.plan.forecast.forecast import Rules, imagined
    from orchestrator.plan.forecast.forecast import forecast as forecast_of
    from orchestrator.view.console import print_json
    from orchestrator.view.forecast import as_document, print_forecasts
    from phone_agent.api import models
    from phone_agent.contract.sizes import parse_bytes

    names = model or list(published.BATCHES)
    _check(algorithm, wire, switches, phones)
    with engine_errors():
        graphs = [models.build(name) for name in names]
        budget = parse_bytes(memory) if memory else 0
    batches = [_batch(batch, name) for name in names]
    latency_s = latency_ms / 1e3
    on = imagined(phones, switches, rate, uplink, latency_s) if phones else _inventorys(inventory, limit, latency_s)
    with engine_errors():
        rules = Rules(
            memory_bytes=budget, algorithm=algorithm, group=group, wire=wire, overlap=overlap, pace=images_per_s
        )
        found = [
            forecast_of(graph, on, phone(), replace(rules, batch=images))
            for graph, images in zip(graphs, batches, strict=True)
        ]
    if as_json:
        print_json(as_document(on, found))
    else:
        print_forecasts(on, phone(), found, measured=images_per_s is not None)


def _check(algorithm: str, wire: str, switches: int, phones: int | None) -> None:
    from phone_agent.api.forecast import SCHEDULED_ALGORITHMS, WIRES

    for flag, given, known in (
        ("algorithm", algorithm, (*SCHEDULED_ALGORITHMS, "auto")),
        ("wire", wire, (*WIRES, "auto")),
    ):
        if given not in known:
            raise UsageError(f"--{flag} {given} is not modelled", remedy=f"--{flag} {', '.join(known)}")
    if phones and switches > phones:
        raise UsageError(f"--switches {switches} for {phones} phones: some would be empty")


def _batch(given: str, name: str) -> int | None:
    from orchestrator.plan.forecast import published

    if given == AUTO:
        return None
    if given == AS_PUBLISHED:
        if name not in published.BATCHES:
            raise UsageError(f"the paper has no batch for {name}", remedy="--batch, a number")
        return published.BATCHES[name]
    if not given.isdecimal() or not int(given):
        raise UsageError(f"--batch {given}", remedy="a number, auto or paper")
    return int(given)


def _inventorys(inventory: Path | None, limit: str | None, latency_s: float) -> Rack:
    from orchestrator.cli.session import open_session
    from orchestrator.plan.forecast.forecast import rack_of

    session = open_session(inventory, limit)
    return rack_of(session.cluster, session.phones, latency_s)
