"""`clusterctl tune`: find the fastest compute settings for each kind of phone."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.help import EXPERT, examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption, complete_model
from orchestrator.errors import EXIT_FAILED, UsageError

ModelOption = Annotated[str, typer.Option(help="Model to time.", autocompletion=complete_model)]
MinutesOption = Annotated[float, typer.Option(help="Search time per kind of phone, in minutes.", min=0.1, max=240)]
BatchOption = Annotated[int, typer.Option(help="Images per step.", min=1, rich_help_panel=EXPERT)]


@examples("clusterctl tune", "clusterctl tune --model resnet50 --minutes 20 --limit sw1")
def tune(
    model: ModelOption = "mobilenet_reduced",
    minutes: MinutesOption = 5.0,
    batch: BatchOption = 16,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the fastest compute settings for each kind of phone.

    Times CPU, GPU and both on one phone of each kind. `launch` then uses the fastest settings.
    """
    from orchestrator.cli.session import open_session
    from orchestrator.tune.device_kinds import query_device_kinds
    from orchestrator.tune.measure import tune as search
    from orchestrator.view.console import print_json
    from orchestrator.view.tune import as_document, print_tuned, tune_progress
    from phone_agent.api.models import model as known_model
    from phone_agent.contract.errors import AgentError
    from phone_agent.contract.tune import TuneRequest

    try:
        known_model(model)
    except AgentError as error:
        raise UsageError(str(error), remedy="clusterctl models list") from None
    session = open_session(inventory, limit)
    request = TuneRequest(model, batch, minutes * 60)
    with session.fleet() as fleet, tune_progress() as on_row:
        kinds = query_device_kinds(fleet, fleet.phones)
        found = search(fleet, kinds, request, on_row, sequential=session.cluster.lab is not None)
    if as_json:
        print_json(as_document(found, request))
    else:
        print_tuned(found)
    if any(each.error for each in found):
        raise typer.Exit(EXIT_FAILED)
