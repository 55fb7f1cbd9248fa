"""`clusterctl launch`: train a model on the phones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.launch_flags import with_request
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.launch.request import LaunchRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cli.session import Session
    from orchestrator.fleet import Fleet
    from orchestrator.health.preflight import Preflight
    from orchestrator.inventory.model import Phone
    from orchestrator.launch.dataset import Dataset
    from orchestrator.launch.initial_weights import Given, Start
    from orchestrator.launch.launcher import Launcher
    from orchestrator.records.record import RunRecord
    from orchestrator.tune.compute_choice import Advice
    from phone_agent.contract.schema import RecoverySpec, RunSpec

LOSS = "When phones are lost"
DEFAULT_RESTARTS = 20


@with_request
def launch(
    request: LaunchRequest,
    data: Annotated[
        str,
        typer.Option(help="auto, synthetic, a name of clusterctl data list, or a folder.", rich_help_panel="How much"),
    ] = "auto",
    whole: Annotated[
        bool | None,
        typer.Option(
            "--replicate-data/--shard-data",
            help="All samples on every phone, or a share each. Default: as they lie there, else all where it fits.",
            rich_help_panel="How much",
        ),
    ] = None,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Go on without phones that cannot take part.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on from that run's newest checkpoint, as a new run.",
            show_default=False,
            rich_help_panel=LOSS,
        ),
    ] = None,
    spare: Annotated[
        str | None,
        typer.Option(
            help="Phones that step in for lost ones: as in --limit.", show_default=False, rich_help_panel=LOSS
        ),
    ] = None,
    min_phones: Annotated[
        int | None,
        typer.Option(help="End when fewer are left. Default: more than half.", min=1, rich_help_panel=LOSS),
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="How often to start again after a loss.", min=0, rich_help_panel=LOSS)
    ] = DEFAULT_RESTARTS,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and come back at once.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and plan; start nothing.")] = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on the phones."""
    from orchestrator.cli.session import open_session
    from orchestrator.launch.recipes import settled
    from orchestrator.launch.run_spec import check_request

    if resume is not None:
        _refuse_with_resume(data, whole, dry_run)
        session = open_session(inventory, limit)
        record = _resume(session, request, resume, (spare, min_phones, max_restarts), skip_unfit)
        _watch(session, record, detach, as_json)
        return
    check_request(request)
    request = settled(request)
    session, survival = _survival(open_session(inventory, limit), spare, min_phones, max_restarts)
    given = _given(request)
    dataset = _open_dataset(data, request, adds=False)
    start = _starting_point(request, given, dataset)
    if not dry_run:
        dataset = _open_dataset(data, request, adds=True)  # last: it may take an hour
    _tell(start, dataset)
    if dry_run:
        _show_plan(session, request, dataset, skip_unfit, as_json)
        return
    record = _start(session, request, dataset, start, skip_unfit, survival, whole)
    _watch(session, record, detach, as_json)


def _open_dataset(wanted: str, request: LaunchRequest, *, adds: bool) -> Dataset:
    from orchestrator.launch.dataset import open_dataset
    from orchestrator.launch.run_spec import DEFAULT_MODEL

    return open_dataset(
        wanted,
        request.model or DEFAULT_MODEL,
        augment=request.augment or "none",
        on_corrupt=request.on_corrupt or "fail",
        adds=adds,
    )


def _watch(session: Session, record: RunRecord, detach: bool, as_json: bool) -> None:
    if detach:
        _report_detached(record, as_json)
    else:
        from orchestrator.cli.attach import follow_to_end

        follow_to_end(session, record, as_json)


def _refuse_with_resume(data: str, whole: bool | None, dry_run: bool) -> None:
    from orchestrator.errors import UsageError

    if dry_run:
        raise UsageError("--dry-run plans new runs only: with --resume it would start one", remedy="clusterctl runs")
    if data != "auto":
        raise UsageError(
            f"--data {data}: a run that is resumed goes on with its own samples", remedy="leave out --data"
        )
    if whole is not None:
        flag = "--replicate-data" if whole else "--shard-data"
        raise UsageError(
            f"{flag}: a run that is resumed goes on with its samples as they were dealt", remedy=f"leave out {flag}"
        )


def _resume(
    session: Session,
    request: LaunchRequest,
    wanted: str,
    survival: tuple[str | None, int | None, int],
    skip_unfit: bool,
) -> RunRecord:
    from orchestrator.launch.launcher import Launcher, one_launch_at_a_time
    from orchestrator.launch.resume import check_resume, resumed_run
    from orchestrator.launch.resume_source import find_checkpoint, start_of, stored_data
    from orchestrator.view.console import note
    from orchestrator.view.run_view import open_run_view

    check_resume(request)
    session, limits = _survival(session, *survival)
    with one_launch_at_a_time(session.state), session.fleet() as fleet, open_run_view() as view:
        launcher = Launcher(session.cluster, session.state, fleet, view.phase)
        parent = launcher.store.find(wanted)
        found = find_checkpoint(fleet, launcher.store, parent, note)
        phones = _fit_phones(launcher, skip_unfit).fit
        before = launcher.store.spec(parent.run_id, parent.attempt)
        spec = resumed_run(before, phones, found.step, request.steps)
        note(f"going on from {found.path.name} of {parent.run_id}")
        start = start_of(before, launcher.store.directory(parent.run_id), found.path)
        spec = _recovering(spec, limits)
        return launcher.run(spec, stored_data(spec.data), start)


def _given(request: LaunchRequest) -> Given | None:
    from orchestrator.launch.initial_weights import read_given

    return read_given(request.weights) if request.weights else None


def _starting_point(request: LaunchRequest, given: Given | None, dataset: Dataset) -> Start:
    from orchestrator.launch.initial_weights import starting_point
    from orchestrator.launch.run_spec import DEFAULT_MODEL, build_graph

    model = request.model or DEFAULT_MODEL
    graph = build_graph(model, dataset.spec, request.freeze)
    names = dataset.class_names
    return starting_point(model, graph, given, request.seed, class_names=names, new_head=request.new_head)


def _tell(start: Start, dataset: Dataset) -> None:
    from orchestrator.view.console import note

    if dataset.note:
        note(dataset.note)
    if start.replaced:
        note(f"starting anew, for {dataset.spec.classes} classes: {', '.join(start.replaced)}; all else as given")


def _survival(
    session: Session, spare: str | None, min_phones: int | None, max_restarts: int
) -> tuple[Session, RecoverySpec]:
    """Spares take no part from the start."""
    from dataclasses import replace

    from orchestrator.errors import UsageError
    from orchestrator.inventory import select
    from phone_agent.contract.schema import RecoverySpec

    spares = tuple(phone.name for phone in select(session.cluster, spare, session.state)) if spare else ()
    phones = tuple(phone for phone in session.phones if phone.name not in spares)
    if not phones:
        raise UsageError(f"--spare {spare} leaves no phone to start with")
    if min_phones is not None and min_phones > len(phones):
        raise UsageError(f"--min-phones {min_phones}, but only {len(phones)} take part")
    return replace(session, phones=phones), RecoverySpec(
        spares=spares, min_phones=min_phones or 0, max_restarts=max_restarts
    )


def _start(
    session: Session,
    request: LaunchRequest,
    dataset: Dataset,
    start: Start,
    skip_unfit: bool,
    survival: RecoverySpec,
    whole: bool | None,
) -> RunRecord:
    from orchestrator.launch.launcher import Launcher, one_launch_at_a_time
    from orchestrator.launch.run_spec import plan_run
    from orchestrator.view.run_view import open_run_view

    with one_launch_at_a_time(session.state), session.fleet() as fleet, open_run_view() as view:
        launcher = Launcher(session.cluster, session.state, fleet, view.phase)
        found = _fit_phones(launcher, skip_unfit)
        advice = _advice(fleet, request, found.fit)
        spec = plan_run(request, found.fit, dataset.spec, memory=found.memory, ways=advice.ways, gpus=advice.gpus)
        _caution(spec)
        return launcher.run(_recovering(spec, survival), dataset, start, whole=whole)


def _recovering(spec: RunSpec, limits: RecoverySpec) -> RunSpec:
    from dataclasses import replace

    return replace(spec, recovery=replace(limits, checkpoint_every=spec.recovery.checkpoint_every))


def _advice(fleet: Fleet, request: LaunchRequest, phones: Sequence[Phone]) -> Advice:
    """How each phone computes, where that is not as the run says; what decides is told."""
    from orchestrator.tune.compute_choice import Advice, advise, is_needed
    from orchestrator.tune.device_kinds import ask_kinds
    from orchestrator.tune.store import TuneStore
    from orchestrator.view.console import note, warn

    known = TuneStore().read()
    if not is_needed(request, known):
        return Advice()
    advice = advise(request, ask_kinds(fleet, phones), known)
    for line in advice.warnings:
        warn(line)
    for line in advice.notes:
        note(line)
    return advice


def _caution(spec: RunSpec) -> None:
    from orchestrator.launch.run_spec import cautions
    from orchestrator.view.console import warn

    for line in cautions(spec):
        warn(line)


def _fit_phones(launcher: Launcher, skip_unfit: bool) -> Preflight:
    from orchestrator.health.preflight import UnfitPhonesError, inspect
    from orchestrator.view.console import warn

    preflight = inspect(launcher.check(), launcher.cluster)
    for line in preflight.cautions():
        warn(line)
    if preflight.unfit and not (skip_unfit and preflight.fit):
        raise UnfitPhonesError(preflight, "launch")
    for line in preflight.explain():
        warn(f"going on without {line}")
    return preflight


def _show_plan(session: Session, request: LaunchRequest, dataset: Dataset, skip_unfit: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from orchestrator.launch.launcher import Launcher
    from orchestrator.launch.mpirun import launch_spec
    from orchestrator.launch.run_spec import common_ssh_port, plan_run
    from orchestrator.view.console import out, print_json
    from orchestrator.view.launch_plan import print_plan
    from orchestrator.view.run_view import open_run_view

    with session.fleet() as fleet, open_run_view() as view:
        found = _fit_phones(Launcher(session.cluster, session.state, fleet, view.phase), skip_unfit)
        advice = _advice(fleet, request, found.fit)
    spec = plan_run(request, found.fit, dataset.spec, memory=found.memory, ways=advice.ways, gpus=advice.gpus)
    _caution(spec)
    argv = launch_spec(spec, session.cluster.subnet, common_ssh_port(found.fit)).argv
    if as_json:
        print_json({"run": asdict(spec), "recipe": request.recipe, "mpirun": list(argv)})
    else:
        print_plan(out, spec, argv, request.recipe)


def _report_detached(record: RunRecord, as_json: bool) -> None:
    from dataclasses import asdict

    from orchestrator.view.console import print_json
    from orchestrator.view.stop_or_detach import print_detached

    print_detached(record.run_id)
    if as_json:
        print_json(asdict(record))
