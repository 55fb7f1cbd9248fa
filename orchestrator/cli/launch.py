"""`clusterctl launch`: train a model on the phones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.completion import complete_backend, complete_model
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.inventory.model import Phone
    from orchestrator.plan.run import LaunchRequest
    from orchestrator.runs.dataset import Dataset
    from orchestrator.runs.launch import Launcher
    from orchestrator.runs.record import RunRecord
    from orchestrator.runs.start import Start

_POSITIVE: dict[str, Any] = {"min": 1, "show_default": False}
_STEPS: dict[str, Any] = {"min": 0, "show_default": False}
MOST_THREADS = 64  # core.ops.MAX_THREADS; importing that would slow down every command


def launch(
    model: Annotated[
        str,
        typer.Option(
            help="Which network: see clusterctl models list; or FILE.py:FUNCTION.", autocompletion=complete_model
        ),
    ] = "lenet",
    steps: Annotated[int | None, typer.Option(help="How many steps. Default: 200.", **_POSITIVE)] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Instead of steps: how often through the data.", min=0.001)
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images a phone and step. Default: 32.", **_POSITIVE)] = None,
    global_batch: Annotated[int | None, typer.Option(help="Instead: images a step in all.", **_POSITIVE)] = None,
    data: Annotated[str, typer.Option(help="auto, fashion-mnist, synthetic, or a folder of IDX files.")] = "auto",
    lr: Annotated[float, typer.Option(help="Learning rate.", min=0.0)] = 0.02,
    momentum: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.9,
    seed: Annotated[int, typer.Option(help="Decides first weights and order of samples.", min=0, max=2**31 - 1)] = 0,
    algorithm: Annotated[str, typer.Option(help="How gradients are summed: ring or mpi.")] = "ring",
    backend: Annotated[
        str, typer.Option(help="What computes: cpu, or reference (numpy: slow).", autocompletion=complete_backend)
    ] = "cpu",
    threads: Annotated[
        int | None, typer.Option(help="Of each phone. Default: one a big core.", max=MOST_THREADS, **_POSITIVE)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Most a phone may use, such as 2.8GB. Default: what training takes.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Start from these: a checkpoint, safetensors or .npz.", show_default=False)
    ] = None,
    freeze: Annotated[
        list[str] | None, typer.Option(help="Layers that do not learn: a name or pattern.", show_default=False)
    ] = None,
    evaluate_every: Annotated[
        int, typer.Option(help="Judge on held-out images each so many steps. Default: at the end.", **_STEPS)
    ] = 0,
    checkpoint_every: Annotated[
        int, typer.Option(help="Write a checkpoint each so many steps. Default: at the end.", **_STEPS)
    ] = 0,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Go on without phones that cannot take part.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and come back at once.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and plan; start nothing.")] = False,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on the phones."""
    from orchestrator.cli.session import open_session
    from orchestrator.plan.run import LaunchRequest, check_request
    from orchestrator.runs.dataset import open_dataset
    from orchestrator.view.console import note

    request = LaunchRequest(
        model,
        steps,
        epochs,
        batch,
        global_batch,
        lr,
        momentum,
        seed,
        algorithm,
        backend,
        threads or 0,
        _bytes(memory),
        evaluate_every,
        checkpoint_every,
        weights,
        tuple(freeze or ()),
    )
    check_request(request)
    session = open_session(inventory, limit)
    dataset = open_dataset(data, model)
    if dataset.note:
        note(dataset.note)
    start = _starting_point(request, dataset)
    if dry_run:
        _show_plan(session, request, dataset, skip_unfit, as_json)
        return
    record = _start(session, request, dataset, start, skip_unfit)
    if detach:
        _report_detached(record, as_json)
    else:
        from orchestrator.cli.attach import follow_to_the_end

        follow_to_the_end(session, record, as_json)


def _bytes(memory: str | None) -> int:
    from orchestrator.errors import UsageError
    from phone_agent.sizes import SizeError, parse_bytes

    try:
        return 0 if memory is None else parse_bytes(memory)
    except SizeError as error:
        raise UsageError(str(error)) from None


def _starting_point(request: LaunchRequest, dataset: Dataset) -> Start:
    from orchestrator.plan.run import build_graph
    from orchestrator.runs.start import starting_point
    from orchestrator.view.console import note

    graph = build_graph(request.model, dataset.spec)
    start = starting_point(request.model, graph, request.weights, request.freeze, request.seed)
    if start.replaced:
        note(f"starting anew, for {graph.classes} classes: {', '.join(start.replaced)}; all else as given")
    return start


def _start(session: Session, request: LaunchRequest, dataset: Dataset, start: Start, skip_unfit: bool) -> RunRecord:
    from orchestrator.plan.run import plan_run
    from orchestrator.runs.launch import Launcher, one_launch_at_a_time
    from orchestrator.view.launch import run_view

    with one_launch_at_a_time(session.state), session.fleet() as fleet, run_view() as view:
        launcher = Launcher(session.cluster, session.state, fleet, view.phase)
        spec = plan_run(request, _fit_phones(launcher, skip_unfit), dataset.spec)
        return launcher.run(spec, dataset, start)


def _fit_phones(launcher: Launcher, skip_unfit: bool) -> tuple[Phone, ...]:
    from orchestrator.runs.preflight import UnfitPhonesError, inspect
    from orchestrator.view.console import warn

    preflight = inspect(launcher.check())
    if preflight.unfit and not (skip_unfit and preflight.fit):
        raise UnfitPhonesError(preflight, "launch")
    for line in preflight.explain():
        warn(f"going on without {line}")
    return preflight.fit


def _show_plan(session: Session, request: LaunchRequest, dataset: Dataset, skip_unfit: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from orchestrator.plan.mpirun import launch_spec
    from orchestrator.plan.run import common_ssh_port, plan_run
    from orchestrator.runs.launch import Launcher
    from orchestrator.view.console import out, print_json
    from orchestrator.view.launch import print_plan, run_view

    with session.fleet() as fleet, run_view() as view:
        phones = _fit_phones(Launcher(session.cluster, session.state, fleet, view.phase), skip_unfit)
    spec = plan_run(request, phones, dataset.spec)
    argv = launch_spec(spec, session.cluster.subnet, common_ssh_port(phones)).argv
    if as_json:
        print_json({"run": asdict(spec), "mpirun": list(argv)})
    else:
        print_plan(out, spec, argv)


def _report_detached(record: RunRecord, as_json: bool) -> None:
    from dataclasses import asdict

    from orchestrator.view.console import print_json
    from orchestrator.view.launch import say_detached

    say_detached(record.run_id)
    if as_json:
        print_json(asdict(record))
