"""`clusterctl launch`: train a model on the phones."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.launch_flags import with_request
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.launch.request import LaunchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.cli.session import Session
    from orchestrator.fleet import Fleet
    from orchestrator.health.preflight import Preflight
    from orchestrator.launch.context import LaunchContext
    from orchestrator.launch.resolve import ResolvedRequest
    from orchestrator.launch.run_spec import PhoneFacts
    from orchestrator.records.record import RunRecord
    from phone_agent.contract.schema import ComputeSpec, RunSpec


@examples(
    "clusterctl launch --model lenet --epochs 5",
    "clusterctl launch --recipe cifar10 --data cifar10 --checkpoint-every 30min",
    "clusterctl launch --model resnet50 --data imagenet --batch auto --wire fp16",
    "clusterctl launch --model resnet50 --data pets --weights resnet50.npz",
    "clusterctl launch --resume 20260131-1200 --steps 5000",
)
@with_request
def launch(
    request: LaunchRequest,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Leave out phones that cannot take part, instead of failing.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Continue a run (id or unique prefix) from its newest checkpoint, as a new run.",
            show_default=False,
            rich_help_panel="Recovery",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return as soon as the run has started.", rich_help_panel="Output")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the plan; start nothing.", rich_help_panel="Output")
    ] = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on the phones."""
    from orchestrator.launch.context import launch_lock
    from orchestrator.launch.dataset import import_dataset
    from orchestrator.launch.resolve import resolve
    from orchestrator.launch.stage import push_data
    from orchestrator.launch.start import launch_run
    from orchestrator.supervisor.service import start_supervisor

    session, spares = _open_session(request, inventory, limit)
    if resume is not None:
        record = _resume(session, request, resume, spares, skip_unfit, dry_run)
        _follow(session, record, detach, as_json)
        return
    resolved = resolve(request, spares=spares)
    _report(resolved)
    _check_reachable(session, inventory)
    if dry_run:
        _print_plan(session, resolved, skip_unfit, as_json)
        return
    resolved = replace(resolved, dataset=import_dataset(resolved.dataset))  # may take an hour: all else is checked
    with launch_lock(session.state), _launch_context(session) as context:
        spec = _plan(context, resolved, skip_unfit)
        supervisor = start_supervisor(session.cluster, session.state)
        spec = push_data(context, spec, resolved.dataset.stored, replicate=resolved.replicate_data)
        supervisor.wait()  # before anything starts: without it, nobody restarts the run when a phone fails
        record = launch_run(context, spec, resolved.initial_state)
    _follow(session, record, detach, as_json)


def _open_session(request: LaunchRequest, inventory: Path | None, limit: str | None) -> tuple[Session, tuple[str, ...]]:
    """The session without the spares, and the names of the spares: these take part only once a phone is lost."""
    from orchestrator.cli.session import open_session
    from orchestrator.errors import UsageError
    from orchestrator.inventory import select

    session, options = open_session(inventory, limit), request.recovery
    selected = select(session.cluster, options.spares, session.state) if options.spares else ()
    spares = tuple(phone.name for phone in selected)
    phones = tuple(phone for phone in session.phones if phone.name not in spares)
    if not phones:
        raise UsageError(f"--spare {options.spares} leaves no phone to start with")
    if options.min_phones is not None and options.min_phones > len(phones):
        raise UsageError(f"--min-phones {options.min_phones}, but only {len(phones)} phones take part")
    return replace(session, phones=phones), spares


def _report(resolved: ResolvedRequest) -> None:
    from orchestrator.view.console import note, warn

    dataset, replaced = resolved.dataset, resolved.initial_state.reinitialized
    if dataset.note:
        note(dataset.note)
    if dataset.warning:
        warn(dataset.warning)
    if replaced:
        classes = dataset.spec.classes
        note(f"initialized at random for {classes} classes: {', '.join(replaced)}; all other weights from the file")


def _check_reachable(session: Session, inventory: Path | None) -> None:
    """The inventory of a fresh clone lists phones that this computer cannot reach: suggest a lab."""
    from orchestrator.errors import UsageError
    from orchestrator.launch.reachability import any_reachable

    if inventory is not None or session.cluster.lab is not None or any_reachable(session.phones):
        return
    count = "the phone" if len(session.phones) == 1 else f"any of the {len(session.phones)} phones"
    raise UsageError(
        f"cannot reach {count} of ./inventory.yaml. Without phones, use a lab of virtual ones",
        remedy="clusterctl lab up --phones 4",
    )


@contextmanager
def _launch_context(session: Session) -> Iterator[LaunchContext]:
    from orchestrator.launch.context import LaunchContext
    from orchestrator.view.run_view import open_run_view

    with session.fleet() as fleet, open_run_view() as view:
        yield LaunchContext(session.cluster, session.state, fleet, view.phase)


def _plan(context: LaunchContext, resolved: ResolvedRequest, skip_unfit: bool) -> RunSpec:
    from orchestrator.launch.run_spec import build_run_spec, cautions
    from orchestrator.view.console import warn

    phones = _fit_phones(context, skip_unfit)
    spec = build_run_spec(resolved, phones.fit, _phone_facts(context.fleet, resolved.compute, phones))
    for line in cautions(spec):
        warn(line)
    return spec


def _fit_phones(context: LaunchContext, skip_unfit: bool) -> Preflight:
    from orchestrator.health.phone_health import collect_health
    from orchestrator.health.preflight import UnfitPhonesError, run_preflight
    from orchestrator.view.console import warn

    health = collect_health(context.fleet, context.counter("checking", len(context.fleet.phones)))
    preflight = run_preflight(health, context.cluster, context.store.claims())
    for line in preflight.warnings():
        warn(line)
    if preflight.unfit and not (skip_unfit and preflight.fit):
        raise UnfitPhonesError(preflight, "launch")
    for line in preflight.explain():
        warn(f"left out: {line}")
    return preflight


def _phone_facts(fleet: Fleet, compute: ComputeSpec, phones: Preflight) -> PhoneFacts:
    """Free memory of the phones, and how each should compute according to `clusterctl tune`."""
    from orchestrator.launch.run_spec import PhoneFacts
    from orchestrator.tune.compute_choice import choose_devices, needs_device_kinds
    from orchestrator.tune.device_kinds import query_device_kinds
    from orchestrator.tune.store import TuneStore
    from orchestrator.view.console import note, warn

    known = TuneStore().read()
    if not needs_device_kinds(compute, known):
        return PhoneFacts(phones.memory)
    choices = choose_devices(compute, query_device_kinds(fleet, phones.fit), known)
    for line in choices.warnings:
        warn(line)
    for line in choices.notes:
        note(line)
    return PhoneFacts(phones.memory, choices.devices, choices.gpus)


def _resume(
    session: Session,
    request: LaunchRequest,
    run: str,
    spares: tuple[str, ...],
    skip_unfit: bool,
    dry_run: bool,
) -> RunRecord:
    from orchestrator.errors import UsageError
    from orchestrator.launch.context import launch_lock
    from orchestrator.launch.resume import build_resumed_spec, check_resume, find_checkpoint, resumed_state, stored_data
    from orchestrator.launch.stage import push_data
    from orchestrator.launch.start import launch_run
    from orchestrator.supervisor.service import start_supervisor
    from orchestrator.view.console import note

    if dry_run:
        raise UsageError("--dry-run cannot be combined with --resume", remedy="clusterctl runs")
    check_resume(request)
    with launch_lock(session.state), _launch_context(session) as context:
        record = context.store.find(run)
        found = find_checkpoint(context.fleet, context.store, record, note)
        phones = _fit_phones(context, skip_unfit).fit
        parent = context.store.spec(record.run_id, record.attempt)
        spec = build_resumed_spec(parent, phones, found.step, request, spares)
        note(f"resuming from {found.path.name} of {record.run_id}")
        state = resumed_state(parent, context.store.directory(record.run_id), found.path)
        supervisor = start_supervisor(session.cluster, session.state)
        stored = stored_data(spec.data).stored
        # As the parent had it: with another partitioning, samples would be taken twice or not at all.
        spec = push_data(context, spec, stored, replicate=spec.data.replicated)
        supervisor.wait()
        return launch_run(context, spec, state)


def _print_plan(session: Session, resolved: ResolvedRequest, skip_unfit: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from orchestrator.launch.mpirun import launch_spec
    from orchestrator.view.console import out, print_json
    from orchestrator.view.launch_plan import print_plan

    with _launch_context(session) as context:
        spec = _plan(context, resolved, skip_unfit)
        argv = launch_spec(spec, session.cluster.subnet).argv
    if as_json:
        print_json({"run": asdict(spec), "recipe": resolved.recipe, "mpirun": list(argv)})
    else:
        print_plan(out, spec, argv, resolved.recipe)


def _follow(session: Session, record: RunRecord, detach: bool, as_json: bool) -> None:
    from orchestrator.cli.supervision import warn_about_logout

    warn_about_logout(session)
    if detach:
        _report_detached(session, record, as_json)
    else:
        from orchestrator.cli.attach import follow_to_end

        follow_to_end(session, record, as_json)


def _report_detached(session: Session, record: RunRecord, as_json: bool) -> None:
    from dataclasses import asdict

    from orchestrator.supervisor.service import ensure_supervisor
    from orchestrator.view.console import print_json
    from orchestrator.view.stop_or_detach import print_detached

    ensure_supervisor(session.cluster, session.state)  # it may have ended while there was no run
    print_detached(record.run_id)
    if as_json:
        print_json(asdict(record))
