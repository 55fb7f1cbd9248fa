"""From what a person asked for to the RunSpec every phone reads."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.plan.batch import split_batches
from phone_agent import layout
from phone_agent.schema import DataSpec, OptimizerSpec, RankSpec, RunSpec

if TYPE_CHECKING:
    from phone_agent.nn.graph import Graph

ALGORITHMS = ("ring", "mpi")
DEFAULT_MODEL = "lenet"
DEFAULT_STEPS = 200
MOST_STEPS = 10**9
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")


@dataclass(frozen=True)
class LaunchRequest:
    """The flags of `clusterctl launch`, before phones and data are known."""

    model: str = DEFAULT_MODEL
    steps: int | None = None
    epochs: float | None = None
    batch: int | None = None
    global_batch: int | None = None
    learning_rate: float = 0.02
    momentum: float = 0.9
    seed: int = 0
    algorithm: str = "ring"
    backend: str = "cpu"
    threads: int = 0  # of each phone; 0: its big cores
    memory_bytes: int = 0  # of each phone; 0: as little as it takes without arithmetic done twice
    evaluate_every: int = 0  # steps; 0: at the end only
    checkpoint_every: int = 0  # steps; 0: at the end only
    weights: Path | None = None  # to start from
    freeze: tuple[str, ...] = ()  # layers that do not learn, by name or pattern


def check_request(request: LaunchRequest) -> None:
    """Everything that can be wrong with the flags alone, told before a phone is asked."""
    from phone_agent.errors import AgentError
    from phone_agent.models import model
    from phone_agent.nn.backends import NAMES as BACKENDS

    try:
        model(request.model)
    except AgentError as error:
        raise UsageError(str(error), remedy="clusterctl models list") from None
    if request.backend not in BACKENDS:
        raise UsageError(f"no backend '{request.backend}'; there is: {', '.join(BACKENDS)}")
    if request.algorithm not in ALGORITHMS:
        raise UsageError(f"no algorithm '{request.algorithm}'; there is: {', '.join(ALGORITHMS)}")
    if request.steps is not None and request.epochs is not None:
        raise UsageError("--steps and --epochs exclude each other", remedy="give only one of them")
    if not all(math.isfinite(each) for each in (request.learning_rate, request.epochs or 0.0)):
        raise UsageError("--lr and --epochs must be finite numbers")
    if max(request.steps or 0, request.epochs or 0) > MOST_STEPS:
        raise UsageError(f"more than {MOST_STEPS} steps or epochs: no rack lives that long")
    split_batches(1, request.batch, request.global_batch)


def plan_run(request: LaunchRequest, phones: Sequence[Phone], data: DataSpec, *, now: float | None = None) -> RunSpec:
    """Ranks follow the phones' order, which is ring order; the first phone is the head."""
    created = time.time() if now is None else now
    graph = build_graph(request.model, data)
    model, model_file = _model_and_file(request.model)
    batches = split_batches(len(phones), request.batch, request.global_batch)
    if max(batches) * len(phones) > data.samples:
        raise UsageError(
            f"{max(batches)} images a phone and step, but {data.name} has only {data.samples // len(phones)} for each",
            remedy="a smaller --batch or --global-batch",
        )
    if request.memory_bytes and request.backend == "cpu":
        _check_memory(graph, max(batches), request)
    return RunSpec(
        run_id=new_run_id(Path(model_file).stem or model, created),
        model=model,
        data=data,
        ranks=tuple(map(_rank, range(len(phones)), phones, batches)),
        steps=_steps(request, sum(batches), data.samples),
        seed=request.seed,
        optimizer=OptimizerSpec(learning_rate=request.learning_rate, momentum=request.momentum),
        backend=request.backend,
        algorithm=request.algorithm,
        threads=request.threads,
        memory_bytes=request.memory_bytes,
        evaluate_every=request.evaluate_every,
        checkpoint_every=request.checkpoint_every,
        weights=layout.WEIGHTS_FILE if request.weights else "",
        freeze=request.freeze,
        model_file=model_file,
        created=created,
    )


def build_graph(model: str, data: DataSpec) -> Graph:
    """A network that cannot take these images is known before a phone is asked."""
    from phone_agent.errors import AgentError
    from phone_agent.models import build

    try:
        return build(model, data.classes, data.input_shape)
    except AgentError as error:
        raise UsageError(str(error), remedy="--data synthetic makes up images of the size it takes") from None


def _check_memory(graph: Graph, batch: int, request: LaunchRequest) -> None:
    """A batch that no phone can hold within --memory. One thread takes the least: phones may still refuse more."""
    from phone_agent.errors import AgentError
    from phone_agent.nn.backends import Options
    from phone_agent.nn.plan.memory import DoesNotFitError, estimate

    try:
        estimate(graph, batch, Options(threads=request.threads or 1, memory_bytes=request.memory_bytes))
    except DoesNotFitError as error:
        raise UsageError(str(error), remedy="a smaller --batch, or more --memory") from None
    except AgentError:
        return  # there is no core to ask on this machine; the phones have theirs


def new_run_id(model: str, created: float) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created))
    short = re.sub(r"[^a-z0-9_.-]+", "-", model.lower())[:40]
    return f"{stamp}-{short}-{secrets.token_hex(2)}"


def _model_and_file(model: str) -> tuple[str, str]:
    """What a RunSpec says of a network: its name, or the function and the file it is staged as."""
    from phone_agent.models import own

    if not own.is_own(model):
        return model, ""
    path, function = own.split(model)
    if not PLAIN_NAME.fullmatch(path.name):
        raise UsageError(f"{path.name} cannot be a file's name on every phone", remedy="letters, digits, '_', '-', '.'")
    return function, path.name


def common_ssh_port(phones: Sequence[Phone]) -> int:
    """mpirun starts all its daemons with one ssh command, so all phones must listen on one port."""
    ports = {phone.ssh_port for phone in phones}
    if len(ports) != 1:
        listed = ", ".join(map(str, sorted(ports)))
        raise UsageError(
            f"the phones listen on different ssh ports ({listed}); mpirun needs one", remedy="see ssh: port"
        )
    return ports.pop()


def _rank(rank: int, phone: Phone, batch: int) -> RankSpec:
    return RankSpec(rank, phone.name, phone.switch, phone.port, str(phone.address), batch)


def _steps(request: LaunchRequest, global_batch: int, samples: int) -> int:
    if request.epochs is not None:
        return max(1, math.ceil(request.epochs * samples / global_batch))
    return DEFAULT_STEPS if request.steps is None else request.steps
