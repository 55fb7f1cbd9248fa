"""`clusterctl data`: datasets on this computer, and on the phones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from orchestrator.fleet.result import Outcomes

app = typer.Typer(help="Datasets: from your files to shards, and on to the phones.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The dataset's name.", show_default=False)]


@app.command()
def add(
    name: NameArgument,
    source: Annotated[
        Path,
        typer.Argument(
            help="CIFAR-10 or -100 (folder or archive), IDX files, or folders of JPEG or PNG.", show_default=False
        ),
    ],
    size: Annotated[int, typer.Option(help="Pixels a side that pictures are stored with.")] = 256,
    on_corrupt: Annotated[str, typer.Option(help="Corrupt records: fail or skip.")] = "fail",
    as_json: JsonOption = False,
) -> None:
    """Make a dataset of files on this computer. A second time changes nothing."""
    from orchestrator.data.add import add as add_dataset
    from orchestrator.view.console import print_json
    from orchestrator.view.data import add_progress, document, print_added

    with add_progress(name) as on_progress:
        added = add_dataset(name, source, size=size, on_corrupt=on_corrupt, on_progress=on_progress)
    if as_json:
        damaged = [str(each) for each in added.damaged]
        print_json({**document(added.stored), "fresh": added.fresh, "skipped": damaged})
    else:
        print_added(added)


@app.command("list")
def list_datasets(as_json: JsonOption = False) -> None:
    """List the datasets of this computer."""
    from orchestrator.data.store import Store
    from orchestrator.view.console import print_json
    from orchestrator.view.data import document, print_datasets

    found = Store().all()
    if as_json:
        print_json([document(each) for each in found])
    else:
        print_datasets(found)


@app.command()
def show(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show what a dataset consists of and where it came from."""
    from orchestrator.data.store import Store
    from orchestrator.view.console import print_json
    from orchestrator.view.data import document, print_dataset

    stored = Store().get(name)
    if as_json:
        print_json({**document(stored), "files": [vars(file) for file in stored.manifest.files]})
    else:
        print_dataset(stored)


@app.command()
def push(
    name: NameArgument,
    whole: Annotated[
        bool | None,
        typer.Option(
            "--whole/--share",
            help="All of it on every phone, or a share each. Default: as it lies there, else all where it fits.",
        ),
    ] = None,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a dataset to the phones: only what is missing or damaged there travels."""
    from orchestrator.cli.session import open_session
    from orchestrator.data.push import Push
    from orchestrator.data.store import Store
    from orchestrator.inventory import remember_failed
    from orchestrator.view.console import print_json
    from orchestrator.view.data import print_pushed, push_progress, pushed_document
    from phone_agent.contract.sharding import even_spans

    stored = Store().get(name)
    session = open_session(inventory, limit)
    phones = session.phones
    spans = even_spans(stored.manifest.samples, len(phones))
    with session.fleet() as fleet, push_progress(name, phones) as on_progress:
        done = Push(fleet, stored, phones, spans, whole, verify=True, on_progress=on_progress).run()
    remember_failed(session.state, [outcome.phone for outcome in done.outcomes.failures])
    if as_json:
        print_json(pushed_document(done))
    print_pushed(name, done)
    if not done.outcomes.ok:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def remove(
    name: NameArgument,
    everywhere: Annotated[
        bool, typer.Option("--from-phones", help="From the phones as well; with --limit, from those phones only.")
    ] = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a dataset from this computer, and from the phones where asked to."""
    from orchestrator.data.store import Store, check_name
    from orchestrator.view.console import print_json
    from orchestrator.view.data import print_removed, removed_document

    check_name(name)
    if limit is not None and not everywhere:
        raise UsageError(f"--limit {limit} names phones, and only --from-phones deletes there", remedy="give both")
    outcomes = _removed_from_phones(name, inventory, limit) if everywhere else None
    here = _removed_here(name, outcomes, only_phones=limit is not None)
    if as_json:
        print_json(removed_document(name, outcomes, here=here))
    print_removed(name, outcomes, here=here, kept=(Store().root / name).is_dir())
    if outcomes is not None and not outcomes.ok:
        raise typer.Exit(EXIT_FAILED)


def _removed_here(name: str, outcomes: Outcomes[dict[str, Any]] | None, *, only_phones: bool) -> bool:
    """Not while some phone has it still: what is here is what it can be looked up by."""
    from orchestrator.data.store import Store
    from orchestrator.view.data import phones_that_had

    known = (Store().root / name).is_dir()
    if outcomes is not None and not known:
        if outcomes.ok and not phones_that_had(outcomes):
            raise UsageError(
                f"there is no dataset called '{name}', here or on the phones", remedy="clusterctl data list"
            )
        return False
    if only_phones or (outcomes is not None and not outcomes.ok):
        return False
    Store().remove(name)
    return True


def _removed_from_phones(name: str, inventory: Path | None, limit: str | None) -> Outcomes[dict[str, Any]]:
    from orchestrator.cli.session import open_session
    from orchestrator.fleet import agent
    from orchestrator.inventory import remember_failed
    from orchestrator.view.progress import phone_progress

    session = open_session(inventory, limit)
    with session.fleet() as fleet, phone_progress("deleting on", session.phones) as on_done:
        outcomes = fleet.map(lambda connection: agent.call(connection, "data-remove", name), on_done=on_done)
    remember_failed(session.state, [outcome.phone for outcome in outcomes.failures])
    return outcomes
