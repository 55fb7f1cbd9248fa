"""`clusterctl data`: datasets on this computer and on the phones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import format_examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED, UsageError
from phone_agent.contract.choices import OnCorrupt
from phone_agent.contract.replies import DatasetRemoved

if TYPE_CHECKING:
    from orchestrator.fleet.result import Outcomes

app = typer.Typer(help="Convert images to datasets, and copy datasets to the phones.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Dataset name.")]


@app.command(
    epilog=format_examples(
        "clusterctl data add cifar10 ~/Downloads/cifar-10-binary.tar.gz",
        "# one subdirectory per class, each with JPEG or PNG files",
        "clusterctl data add flowers ~/pictures/flowers --size 128",
        "clusterctl launch --data flowers --model mobilenet_v1",
    )
)
def add(
    name: NameArgument,
    source: Annotated[
        Path,
        typer.Argument(
            help="CIFAR-10, CIFAR-100 or IDX files such as MNIST (directory or archive), or a directory with "
            "one subdirectory of images per class."
        ),
    ],
    size: Annotated[int, typer.Option(help="Resize JPEG and PNG images to this many pixels per side.")] = 256,
    on_corrupt: Annotated[OnCorrupt, typer.Option(help="On corrupt images: fail, or skip them.")] = "fail",
    as_json: JsonOption = False,
) -> None:
    """Convert files on this computer to a dataset. Running it again on unchanged files does nothing."""
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
    """List the datasets on this computer."""
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
    """Show a dataset's contents and source."""
    from orchestrator.data.store import Store
    from orchestrator.view.console import print_json
    from orchestrator.view.data import document, print_dataset

    stored = Store().get(name)
    if as_json:
        print_json({**document(stored), "files": [vars(file) for file in stored.manifest.files]})
    else:
        print_dataset(stored)


@app.command(
    epilog=format_examples("clusterctl data push cifar10", "clusterctl data push imagenet --shard-data --limit sw1")
)
def push(
    name: NameArgument,
    whole: Annotated[
        bool | None,
        typer.Option(
            "--replicate-data/--shard-data",
            help="Put all images on every phone, or a different shard on each. Default: keep the current layout; for a "
            "new dataset, replicate if it needs at most a quarter of every phone's free space.",
        ),
    ] = None,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a dataset to the phones. Only missing or corrupt files are sent. `launch` also does this."""
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
        bool,
        typer.Option(
            "--from-phones",
            help="Also delete the dataset from the phones. With --limit: only from those phones; the local copy stays.",
        ),
    ] = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a dataset from this computer; with --from-phones, also from the phones."""
    from orchestrator.data.store import Store, check_name
    from orchestrator.view.console import print_json
    from orchestrator.view.data import print_removed, removed_document

    check_name(name)
    if limit is not None and not everywhere:
        raise UsageError(f"--limit {limit} has no effect without --from-phones", remedy="give both")
    outcomes = _remove_from_phones(name, inventory, limit) if everywhere else None
    here = _remove_here(name, outcomes, only_phones=limit is not None)
    if as_json:
        print_json(removed_document(name, outcomes, here=here))
    print_removed(name, outcomes, here=here, kept=(Store().root / name).is_dir())
    if outcomes is not None and not outcomes.ok:
        raise typer.Exit(EXIT_FAILED)


def _remove_here(name: str, outcomes: Outcomes[DatasetRemoved] | None, *, only_phones: bool) -> bool:
    """Kept here if a phone still has it: the name must stay known for the next attempt."""
    from orchestrator.data.store import Store
    from orchestrator.view.data import phones_that_had

    known = (Store().root / name).is_dir()
    if outcomes is not None and not known:
        if outcomes.ok and not phones_that_had(outcomes):
            raise UsageError(
                f"no dataset named '{name}' on this computer or on the phones", remedy="clusterctl data list"
            )
        return False
    if only_phones or (outcomes is not None and not outcomes.ok):
        return False
    Store().remove(name)
    return True


def _remove_from_phones(name: str, inventory: Path | None, limit: str | None) -> Outcomes[DatasetRemoved]:
    from orchestrator.cli.session import open_session
    from orchestrator.fleet import agent
    from orchestrator.inventory import remember_failed
    from orchestrator.view.progress import phone_progress

    session = open_session(inventory, limit)
    with session.fleet() as fleet, phone_progress("deleting on", session.phones) as on_done:
        outcomes = fleet.map(lambda phone: agent.call(phone, DatasetRemoved, "data-remove", name), on_done=on_done)
    remember_failed(session.state, [outcome.phone for outcome in outcomes.failures])
    return outcomes
