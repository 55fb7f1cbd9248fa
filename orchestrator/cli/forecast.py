"""`clusterctl forecast`: the modeled training speed of a rack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.choices import ForecastAlgorithm, ForecastWire
from orchestrator.cli.help import EXPERT, examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption, complete_model
from orchestrator.errors import UsageError, agent_errors

if TYPE_CHECKING:
    from orchestrator.plan.forecast.forecast import RackModel

MAX_PHONES = 100_000
IMAGINED = "A rack without an inventory"


@examples(
    "clusterctl forecast --model resnet50 --phones 16",
    "clusterctl forecast --model resnet50 --phones 138 --switches 3 --uplink 10gbit --wire fp16",
    "# the paper's models and batch sizes, on the phones in the inventory",
    "clusterctl forecast --batch paper -i inventory.yaml",
)
def forecast(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model. Repeatable. Default: the ten models in the paper (Na et al., 2021).",
            autocompletion=complete_model,
        ),
    ] = None,
    batch: Annotated[
        str,
        typer.Option(
            help="Images per phone per step: a number, auto (the most that fit in memory), or paper (Table I of Na "
            "et al., 2021).",
            metavar="N|auto|paper",
        ),
    ] = "auto",
    memory: Annotated[str | None, typer.Option(help="Memory per phone, such as 2.8GB. Default: 2.8GB.")] = None,
    images_per_s: Annotated[
        float | None,
        typer.Option(
            help="Speed of one phone, as measured by `bench device` or `tune`. Default: a modeled Galaxy S10+.",
            min=1e-6,
        ),
    ] = None,
    algorithm: Annotated[
        ForecastAlgorithm, typer.Option(help="Allreduce algorithm. auto: ring or hierarchical, whichever is faster.")
    ] = "auto",
    wire: Annotated[
        ForecastWire, typer.Option(help="Gradient wire format. auto: fp32, or fp16 if clearly faster.")
    ] = "fp32",
    phones: Annotated[
        int | None,
        typer.Option(
            help="Forecast for this many phones instead of the inventory.",
            min=1,
            max=MAX_PHONES,
            rich_help_panel=IMAGINED,
        ),
    ] = None,
    switches: Annotated[
        int, typer.Option(help="With --phones: number of switches.", min=1, rich_help_panel=IMAGINED)
    ] = 1,
    rate: Annotated[str, typer.Option(help="With --phones: link speed per phone.", rich_help_panel=IMAGINED)] = "1gbit",
    uplink: Annotated[
        str, typer.Option(help="With --phones: link speed between switches.", rich_help_panel=IMAGINED)
    ] = "1gbit",
    group_size: Annotated[
        int,
        typer.Option(
            help="With --algorithm hierarchical: maximum number of phones per group. 0: all phones on a switch, or the "
            "best size with --algorithm auto.",
            min=0,
            rich_help_panel=EXPERT,
        ),
    ] = 0,
    overlap: Annotated[
        bool, typer.Option(help="Send gradients while the backward pass is running.", rich_help_panel=EXPERT)
    ] = True,
    latency_ms: Annotated[
        float,
        typer.Option(
            help="Network latency between two phones, in milliseconds.", min=0.0, max=1000.0, rich_help_panel=EXPERT
        ),
    ] = 0.5,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the training speed of a rack without running anything.

    Use it to choose a model, batch size and network hardware before you buy or build anything.
    """
    from orchestrator.plan.forecast import published
    from orchestrator.plan.forecast.device_model import load_phone_model
    from orchestrator.plan.forecast.forecast import TrainingSetup, uniform_rack
    from orchestrator.plan.forecast.forecast import forecast as forecast_of
    from orchestrator.text import count_of
    from orchestrator.view.console import print_json
    from orchestrator.view.forecast import as_document, print_forecasts
    from orchestrator.view.progress import working
    from phone_agent.api import models
    from phone_agent.contract.sizes import parse_bytes

    names = model or list(published.BATCHES)
    if phones and switches > phones:
        raise UsageError(f"--switches {switches} is more than --phones {phones}")
    with agent_errors():
        graphs = [models.build(name) for name in names]
        budget = parse_bytes(memory) if memory else 0
    batches = [_batch(batch, name) for name in names]
    latency_s = latency_ms / 1e3
    rack = (
        uniform_rack(phones, switches, rate, uplink, latency_s)
        if phones
        else _inventory_rack(inventory, limit, latency_s)
    )
    with agent_errors(), working(f"modeling {count_of(names, 'model')}"):
        setup = TrainingSetup(
            memory_bytes=budget,
            algorithm=algorithm,
            group_size=group_size,
            wire=wire,
            overlap=overlap,
            images_per_s=images_per_s,
        )
        found = [
            forecast_of(graph, rack, load_phone_model(), replace(setup, batch=images))
            for graph, images in zip(graphs, batches, strict=True)
        ]
    if as_json:
        print_json(as_document(rack, found))
    else:
        print_forecasts(rack, load_phone_model(), found, measured=images_per_s is not None)


def _batch(given: str, name: str) -> int | None:
    from orchestrator.plan.forecast import published

    if given == "auto":
        return None
    if given == "paper":
        if name not in published.BATCHES:
            raise UsageError(f"the paper has no batch size for {name}", remedy="give a number: --batch 32")
        return published.BATCHES[name]
    if not given.isdecimal() or not int(given):
        raise UsageError(f"--batch {given} is neither a number nor auto nor paper", remedy="--batch 32")
    return int(given)


def _inventory_rack(inventory: Path | None, limit: str | None, latency_s: float) -> RackModel:
    from orchestrator.cli.session import open_session
    from orchestrator.plan.forecast.forecast import rack_from_inventory

    session = open_session(inventory, limit)
    return rack_from_inventory(session.cluster, session.phones, latency_s)
