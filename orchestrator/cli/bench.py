"""`clusterctl bench`: measure_compute what the rack can do, or (`compute`, `kernels`) this machine alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.agent_errors import engine_errors
from orchestrator.cli.bench_device import device
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED

if TYPE_CHECKING:
    from orchestrator.bench.allreduce import AllreduceResult

app = typer.Typer(help="Measure what the rack, or this machine, can do.", no_args_is_help=True)

ThreadsOption = Annotated[
    int | None, typer.Option(help="Threads. Default: one for each core this process may use.", show_default=False)
]
IsaOption = Annotated[str | None, typer.Option(help="Kernels to use: avx512, avx2, sse2; neon-fp16, neon.")]


app.command()(device)


@app.callback()
def bench() -> None:
    """Measure what the rack, or this machine, can do."""


@app.command()
def allreduce(
    mb: Annotated[
        float | None,
        typer.Option(
            help="Size of the summed buffer. Default: the --model's gradients, else 97.7.", min=0.001, max=2000
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(help="ring or hierarchical (ours), mpi (MPI_Allreduce), chunkwise (one MPI_Allreduce a layer)."),
    ] = "ring",
    group: Annotated[
        int, typer.Option(help="Most phones of a hierarchy's groups. 0: all of a switch.", min=0, max=100_000)
    ] = 0,
    wire: Annotated[str, typer.Option(help="How numbers travel: fp32, fp16, bf16 or int8.")] = "fp32",
    model: Annotated[str | None, typer.Option(help="Sum as many numbers as this network's gradients are.")] = None,
    order: Annotated[
        str, typer.Option(help="ring follows the switches; interleaved shows what that is worth.")
    ] = "ring",
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 5,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time one allreduce over the phones, against the speed of their links."""
    from orchestrator.bench.allreduce import USUAL_MB, AllreduceRequest, bench_allreduce
    from orchestrator.cli.session import open_session
    from orchestrator.health.health import ask_all
    from orchestrator.health.preflight import UnfitPhonesError, inspect
    from orchestrator.view.allreduce import as_document, print_allreduce
    from orchestrator.view.console import print_json

    size = USUAL_MB if mb is None and model is None else mb
    request = AllreduceRequest(size, algorithm, wire, order, repeats, model, group)
    request.check()
    session = open_session(inventory, limit)
    with session.fleet() as fleet:
        preflight = inspect(ask_all(fleet), session.cluster)
        if preflight.unfit:
            raise UnfitPhonesError(preflight, "bench allreduce")
        result = bench_allreduce(session.cluster, session.phones, fleet.connection(session.phones[0]), request)
    if as_json:
        print_json(as_document(result))
    else:
        print_allreduce(result)
    _exit_by(result)


@app.command()
def linpack(
    n: Annotated[
        int | None,
        typer.Option("--n", help="Equations. Default: 2048 times the root of the phones.", show_default=False),
    ] = None,
    memory: Annotated[
        float | None, typer.Option(help="As many as fit into this share of the phones' free memory, e.g. 0.8.")
    ] = None,
    nb: Annotated[int, typer.Option(help="Rows and columns of a block.")] = 128,
    grid: Annotated[
        str | None, typer.Option(help="Phones in rows and columns, e.g. 2x3. Default: as square as can be.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of each phone. 0: one for each big core.")] = 0,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Solve equations on the phones in double precision (High Performance LINPACK), and check the answer."""
    from orchestrator.bench.linpack import LinpackRequest, bench_linpack, plan_linpack
    from orchestrator.cli.session import open_session
    from orchestrator.health.health import ask_all
    from orchestrator.health.preflight import UnfitPhonesError, inspect
    from orchestrator.view.console import print_json
    from orchestrator.view.linpack import as_document, print_linpack

    request = LinpackRequest(n, memory, nb, grid, threads)
    request.check()
    session = open_session(inventory, limit)
    request.grid_of(len(session.phones))  # one that cannot be is told before a phone is asked
    with session.fleet() as fleet:
        preflight = inspect(ask_all(fleet), session.cluster)
        if preflight.unfit:
            raise UnfitPhonesError(preflight, "bench linpack")
        plan = plan_linpack(request, session.phones, preflight.memory, shared=session.cluster.lab is not None)
        result = bench_linpack(session.cluster, session.phones, fleet.connection(session.phones[0]), plan)
    if as_json:
        print_json(as_document(result))
    else:
        print_linpack(result)
    if not result.passed:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def compute(
    model: Annotated[str, typer.Option(help="The network to train.")] = "mobilenet_v1",
    batch: Annotated[int, typer.Option(help="Images a step.")] = 8,
    threads: ThreadsOption = None,
    steps: Annotated[int, typer.Option(help="Steps to time, after one to warm up.")] = 5,
    backend: Annotated[str, typer.Option(help="cpu (the core), or reference (numpy: slow).")] = "cpu",
    isa: IsaOption = None,
    memory: Annotated[
        str | None, typer.Option(help="Stay below, e.g. 2.8GB: layers are computed twice where that saves memory.")
    ] = None,
    winograd: Annotated[bool, typer.Option(help="Let 3x3 convolutions use Winograd's method.")] = True,
    half: Annotated[bool, typer.Option("--half", help="Store activations in fp16; arithmetic stays in fp32.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time training steps of a network on this machine, and say where the time goes."""
    from orchestrator.view.bench_compute import compute_document, print_compute
    from orchestrator.view.console import print_json
    from phone_agent.api.bench import ComputeRequest, FailedError, measure_compute, usable_threads

    request = ComputeRequest(
        model,
        batch,
        usable_threads() if threads is None else threads,
        steps,
        backend,
        isa,
        _bytes(memory),
        winograd,
        half,
    )
    with engine_errors(FailedError):
        outcome = measure_compute(request)
    if as_json:
        print_json(compute_document(outcome))
    else:
        print_compute(outcome)


@app.command()
def kernels(
    only: Annotated[str, typer.Option(help="Kernels with this in their name, e.g. depthwise.")] = "",
    threads: ThreadsOption = None,
    isa: IsaOption = None,
    seconds: Annotated[float, typer.Option(help="Time for each.", min=0.0, max=60)] = 0.2,
    as_json: JsonOption = False,
) -> None:
    """Time each kernel of the core alone, as a share of what this processor could do at most."""
    from orchestrator.view.bench_compute import kernels_document, print_kernels
    from orchestrator.view.console import print_json
    from phone_agent.api.bench import measure_kernels, measure_machine, usable_threads

    with engine_errors():
        machine = measure_machine(usable_threads() if threads is None else threads, isa, seconds)
        measured = list(measure_kernels(machine, only, seconds))
    if as_json:
        print_json(kernels_document(machine, measured))
    else:
        print_kernels(machine, measured)


def _bytes(given: str | None) -> int | None:
    from phone_agent.contract.sizes import parse_bytes

    with engine_errors():
        return None if given is None else parse_bytes(given)


def _exit_by(result: AllreduceResult) -> None:
    if not result.correct:
        raise typer.Exit(EXIT_FAILED)
