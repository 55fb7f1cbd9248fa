"""`clusterctl bench`: speed of the rack (`allreduce`, `linpack`), of one device, or of this computer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.bench_device import EXAMPLES as DEVICE_EXAMPLES
from orchestrator.cli.bench_device import device
from orchestrator.cli.choices import AllreduceAlgorithm, ComputeBackend, InstructionSet, Wire
from orchestrator.cli.help import EXPERT, format_examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption, OrderOption, complete_model
from orchestrator.errors import EXIT_FAILED, agent_errors
from phone_agent.contract.choices import Activations

if TYPE_CHECKING:
    from orchestrator.cli.session import Session
    from orchestrator.fleet import Fleet
    from orchestrator.health.preflight import Preflight

app = typer.Typer(help="Measure the speed of the rack, a phone or this computer.", no_args_is_help=True)

ThreadsOption = Annotated[
    int | None, typer.Option(help="Number of threads. Default: one per core this process may use.")
]
IsaOption = Annotated[
    InstructionSet | None,
    typer.Option(
        help="Instruction set for the kernels. Default: the best this computer supports.", rich_help_panel=EXPERT
    ),
]

app.command(epilog=DEVICE_EXAMPLES)(device)


@app.callback()
def bench() -> None:
    """Measure the speed of the rack, a phone or this computer."""


@app.command(
    epilog=format_examples(
        "clusterctl bench allreduce --model resnet50",
        "clusterctl bench allreduce --mb 97.7 --algorithm mpi",
        "clusterctl bench allreduce --wire fp16 --limit sw1:1-8 --json",
    )
)
def allreduce(
    mb: Annotated[
        float | None,
        typer.Option(
            help="Buffer size in MB. Default: the model's gradient size, or 97.7 (ResNet-50) without --model.",
            min=0.001,
            max=2000,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Use this model's gradient size.", autocompletion=complete_model)
    ] = None,
    algorithm: Annotated[
        AllreduceAlgorithm,
        typer.Option(
            help="Allreduce algorithm. ring and hierarchical: our own; mpi: MPI_Allreduce; chunkwise: one "
            "MPI_Allreduce per parameter."
        ),
    ] = "ring",
    wire: Annotated[Wire, typer.Option(help="Wire format.")] = "fp32",
    repeats: Annotated[int, typer.Option(help="Number of repetitions; the fastest is reported.", min=1)] = 5,
    group_size: Annotated[
        int,
        typer.Option(
            help="With --algorithm hierarchical: maximum number of phones per group. 0: all phones on a switch.",
            min=0,
            max=100_000,
            rich_help_panel=EXPERT,
        ),
    ] = 0,
    order: OrderOption = "ring",
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time an allreduce across the phones, and compare it with their link speed."""
    from orchestrator.bench.allreduce import USUAL_MB, AllreduceRequest, bench_allreduce
    from orchestrator.cli.session import open_session
    from orchestrator.view.bench import allreduce_document, print_allreduce
    from orchestrator.view.console import print_json
    from orchestrator.view.progress import working

    size = USUAL_MB if mb is None and model is None else mb
    request = AllreduceRequest(size, algorithm, wire, order, repeats, model, group_size)
    request.check()
    session = open_session(inventory, limit)
    with session.fleet() as fleet:
        _require_fit_phones(session, fleet, "bench allreduce")
        with working(f"running {repeats} allreduces"):
            result = bench_allreduce(session.cluster, fleet, session.phones, request)
    if as_json:
        print_json(allreduce_document(result))
    else:
        print_allreduce(result)
    if not result.correct:
        raise typer.Exit(EXIT_FAILED)


@app.command(
    epilog=format_examples(
        "clusterctl bench linpack",
        "clusterctl bench linpack --memory 0.8",
        "clusterctl bench linpack --n 8192 --grid 2x3 --json",
    )
)
def linpack(
    n: Annotated[
        int | None,
        typer.Option("--n", help="Number of equations. Default: 2048 x square root of the number of phones."),
    ] = None,
    memory: Annotated[
        float | None, typer.Option(help="Instead of --n: fill this fraction of free memory, such as 0.8.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads per phone. 0: one per big core.")] = 0,
    nb: Annotated[int, typer.Option(help="Block size.", rich_help_panel=EXPERT)] = 128,
    grid: Annotated[
        str | None,
        typer.Option(help="Process grid, such as 2x3. Default: as square as possible.", rich_help_panel=EXPERT),
    ] = None,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run High Performance LINPACK on the phones: solve a dense system in fp64, and check the residual."""
    from orchestrator.bench.linpack import LinpackRequest, bench_linpack, plan_linpack
    from orchestrator.cli.session import open_session
    from orchestrator.view.bench import linpack_document, print_linpack
    from orchestrator.view.console import print_json
    from orchestrator.view.progress import working

    request = LinpackRequest(n, memory, nb, grid, threads)
    request.check()
    session = open_session(inventory, limit)
    request.grid_of(len(session.phones))  # an impossible grid is reported before any phone is contacted
    with session.fleet() as fleet:
        preflight = _require_fit_phones(session, fleet, "bench linpack")
        plan = plan_linpack(request, session.phones, preflight.memory, shared=session.cluster.lab is not None)
        with working(f"solving {plan.system.n} equations"):
            result = bench_linpack(session.cluster, fleet, session.phones, plan)
    if as_json:
        print_json(linpack_document(result))
    else:
        print_linpack(result)
    if not result.passed:
        raise typer.Exit(EXIT_FAILED)


@app.command(
    epilog=format_examples(
        "clusterctl bench compute --model resnet50 --batch 4",
        "clusterctl bench compute --model mobilenet_v1 --batch 32 --activations fp16",
        "clusterctl bench compute --model resnet50 --batch 16 --memory 2.8GB --json",
    )
)
def compute(
    model: Annotated[str, typer.Option(help="Model to train.", autocompletion=complete_model)] = "mobilenet_v1",
    batch: Annotated[int, typer.Option(help="Images per step.")] = 8,
    threads: ThreadsOption = None,
    steps: Annotated[int, typer.Option(help="Steps to time, after one warm-up step.")] = 5,
    memory: Annotated[
        str | None, typer.Option(help="Memory limit, such as 2.8GB. Activations are recomputed if necessary.")
    ] = None,
    activations: Annotated[
        Activations, typer.Option(help="Storage format for activations; arithmetic stays in fp32.")
    ] = "fp32",
    backend: Annotated[
        ComputeBackend,
        typer.Option(help="Compute backend. cpu: our C core; reference: numpy, slow.", rich_help_panel=EXPERT),
    ] = "cpu",
    isa: IsaOption = None,
    winograd: Annotated[
        bool, typer.Option(help="Use Winograd's algorithm for 3x3 convolutions.", rich_help_panel=EXPERT)
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Time training steps of a model on this computer, and show where the time goes, by operation."""
    from orchestrator.view.bench import compute_document, print_compute
    from orchestrator.view.console import print_json
    from orchestrator.view.progress import computing, working
    from phone_agent.api.measure import ComputeRequest, FailedError, measure_compute, usable_threads

    request = ComputeRequest(
        model,
        batch,
        usable_threads() if threads is None else threads,
        steps,
        backend,
        isa,
        _bytes(memory),
        winograd,
        activations == "fp16",
    )
    show = working if backend == "reference" else computing
    with agent_errors(FailedError), show(f"timing {steps} training steps of {model}"):
        outcome = measure_compute(request)
    if as_json:
        print_json(compute_document(outcome))
    else:
        print_compute(outcome)


@app.command(
    epilog=format_examples("clusterctl bench kernels", "clusterctl bench kernels --only depthwise --threads 1")
)
def kernels(
    only: Annotated[str, typer.Option(help="Only kernels whose name contains this text, such as depthwise.")] = "",
    threads: ThreadsOption = None,
    seconds: Annotated[float, typer.Option(help="Time per kernel, in seconds.", min=0.0, max=60)] = 0.2,
    isa: IsaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure each compute kernel's throughput on this computer, as a fraction of the processor's peak."""
    from orchestrator.view.bench import kernels_document, print_kernels
    from orchestrator.view.console import print_json
    from orchestrator.view.progress import computing
    from phone_agent.api.measure import measure_kernels, measure_machine, usable_threads

    with agent_errors(), computing("timing kernels"):
        machine = measure_machine(usable_threads() if threads is None else threads, isa, seconds)
        measured = list(measure_kernels(machine, only, seconds))
    if as_json:
        print_json(kernels_document(machine, measured))
    else:
        print_kernels(machine, measured)


def _require_fit_phones(session: Session, fleet: Fleet, command: str) -> Preflight:
    from orchestrator.health.phone_health import collect_health
    from orchestrator.health.preflight import UnfitPhonesError, run_preflight
    from orchestrator.view.progress import phone_progress

    with phone_progress("checking", fleet.phones) as on_done:
        preflight = run_preflight(collect_health(fleet, on_done), session.cluster)
    if preflight.unfit:
        raise UnfitPhonesError(preflight, command)
    return preflight


def _bytes(given: str | None) -> int | None:
    from phone_agent.contract.sizes import parse_bytes

    with agent_errors():
        return None if given is None else parse_bytes(given)
