"""From what a person asked for to the RunSpec every phone reads."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.recipes import DEFAULT_RATE, learning_rate, recipe, settled
from orchestrator.launch.request import AUTO, FP32_ONLY, LaunchRequest, flag_of
from orchestrator.plan.batch import largest_batches, split_batches
from phone_agent.contract import layout
from phone_agent.contract.schema import (
    CommunicationSpec,
    ComputeSpec,
    DataSpec,
    DeviceConfig,
    OptimizerSpec,
    RankSpec,
    RecoverySpec,
    RunSpec,
    ScheduleSpec,
)

if TYPE_CHECKING:
    from phone_agent.api.memory import Limits, Options
    from phone_agent.api.models import Graph

ALGORITHMS = ("ring", "hierarchical", "mpi", "chunkwise", "auto")
WIRES = ("fp32", "fp16", "bf16", "int8", "powersgd", "auto")
GROUPED = frozenset({"hierarchical", "auto"})
ROUNDING = frozenset(WIRES) - {"fp32", "auto"}  # what only our own schedules know how to send
ON_CORRUPT = ("fail", "skip")
BALANCE = ("auto", "off")
RATES = {  # where to begin, with optimizers for which the usual rate is none
    "lars": "begin with --lr 1.6 --trust 0.02 for a global batch of 1024, and less for smaller ones (as cifar10-lars)",
    "lamb": "begin with --lr 0.005: a step then moves a tensor by half a hundredth of its length",
}
PLAIN_RATE = "begin with --lr 0.1 for a global batch of 256, and in proportion for others (as resnet50-imagenet)"
READ_BY = {  # flags that only some schedules, or optimizers, have a use for
    "step_every": ("schedule", ("step",)),
    "gamma": ("schedule", ("step",)),
    "power": ("schedule", ("polynomial",)),
    "floor": ("schedule", ("polynomial", "cosine")),
    "trust": ("optimizer", ("lars",)),
    "second_momentum": ("optimizer", ("lamb",)),
    "epsilon": ("optimizer", ("lamb",)),
}
DEFAULT_MODEL = "lenet"
DEFAULT_STEPS = 200
MOST_STEPS = 10**9
SMALLEST_BUCKET = 64 * 1024
MOST_BIG_CORES = 8  # of a phone; more threads take more memory, so that a batch planned for all fits those with fewer
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")


def check_request(request: LaunchRequest) -> None:
    """Everything that can be wrong with the flags alone, told before a phone is asked."""
    from phone_agent.api.models import model
    from phone_agent.api.training import check_optimizer, check_schedule
    from phone_agent.contract.errors import AgentError

    _check_warmup(request)
    flags, request = request, settled(request)
    try:
        model(request.model or DEFAULT_MODEL)
    except AgentError as error:
        raise UsageError(str(error), remedy="clusterctl models list") from None
    _check_names(request)
    _check_figures(request)
    _check_head(request)
    split_batches(1, request.batch, request.global_batch)
    try:
        check_optimizer(_optimizer(request, 1))
        check_schedule(_schedule(request, 1.0))
    except AgentError as error:
        raise UsageError(str(error), remedy="clusterctl launch --help") from None
    _check_rate(request)
    _check_use(flags, request)
    _check_alone(request)


def _check_use(flags: LaunchRequest, request: LaunchRequest) -> None:
    """Of what was given as a flag: a recipe's figures may wait for another schedule or optimizer."""
    chosen = {"schedule": _schedule(request, 1.0).policy, "optimizer": _optimizer(request, 1).name}
    for name, (kind, readers) in READ_BY.items():
        if getattr(flags, name) is not None and chosen[kind] not in readers:
            flag, needed = flag_of(name, getattr(flags, name)), " or ".join(readers)
            raise UsageError(
                f"{flag} means nothing to --{kind} {chosen[kind]}", remedy=f"--{kind} {needed}, or no {flag}"
            )


def _check_alone(request: LaunchRequest) -> None:
    """What becomes of steps alone, where there are none."""
    for name in ("outer_rate", "outer_momentum"):
        if request.local_steps == 1 and getattr(request, name) != getattr(LaunchRequest(), name):
            flag = flag_of(name, getattr(request, name))
            raise UsageError(f"{flag} means nothing without --local-steps", remedy=f"--local-steps 16, or no {flag}")


def _check_rate(request: LaunchRequest) -> None:
    """A rate of plain SGD's says nothing where steps are scaled by the values' norm: LARS would hardly move with it.
    And one of theirs says nothing to plain SGD."""
    asked, own = request.optimizer, recipe(request.recipe).values.get("optimizer") if request.recipe else None
    if request.learning_rate is not None or asked == own or not RATES.keys() & {asked, own}:
        return
    whose = f"{request.recipe}'s is {own}'s" if request.recipe else f"{DEFAULT_RATE:g} is sgd's"
    raise UsageError(
        f"--optimizer {asked} without --lr: {whose}, and means something else to it",
        remedy=RATES.get(asked or "", PLAIN_RATE),
    )


def _check_names(request: LaunchRequest) -> None:
    from phone_agent.contract.choices import AUGMENTATIONS, BACKENDS
    from phone_agent.contract.choices import AUTO as AS_MEASURED

    for kind, given, known in (
        ("backend", request.backend, (*BACKENDS, AS_MEASURED)),
        ("algorithm", request.algorithm, ALGORITHMS),
        ("wire format", request.wire, WIRES),
        ("way to balance", request.balance, BALANCE),
        ("way with damaged samples", request.on_corrupt or "fail", ON_CORRUPT),
        ("augmentation", request.augment or "none", AUGMENTATIONS),
    ):
        if given not in known:
            raise UsageError(f"no {kind} '{given}'; there is: {', '.join(known)}")
    if request.wire in ROUNDING and request.algorithm in FP32_ONLY:
        raise UsageError(
            f"--algorithm {request.algorithm} sends fp32 only, not {request.wire}",
            remedy=f"--algorithm ring or hierarchical with --wire {request.wire}",
        )


def _check_head(request: LaunchRequest) -> None:
    if request.new_head is not None and request.weights is None:
        flag = flag_of("new_head", request.new_head)
        raise UsageError(f"{flag} says what becomes of given weights", remedy=f"name them with --weights, or no {flag}")


def _check_figures(request: LaunchRequest) -> None:
    if request.steps is not None and request.epochs is not None:
        raise UsageError("--steps and --epochs exclude each other", remedy="give only one of them")
    numbers = [number for each in fields(request) if isinstance(number := getattr(request, each.name), float)]
    spans = (request.warmup.count if request.warmup else None, request.step_every.count if request.step_every else None)
    if not all(math.isfinite(each) for each in (*numbers, *spans) if each is not None):
        raise UsageError("an amount without end", remedy="finite numbers for --lr, --epochs and the like")
    if request.step_every and not request.step_every.count:
        raise UsageError(
            "--step-every 0: the rate would fall at every step", remedy="--step-every 500 (steps), or 30e (epochs)"
        )
    if 0 < request.bucket_bytes < SMALLEST_BUCKET:
        raise UsageError(
            f"--bucket of {request.bucket_bytes} bytes: messages below 64KiB cost more in starting than in sending",
            remedy="--bucket 4MB, or leave it to measurement",
        )
    if request.group and request.algorithm not in GROUPED:
        raise UsageError(f"--algorithm {request.algorithm} has no groups", remedy="--algorithm hierarchical or auto")
    if max(request.steps or 0, request.epochs or 0) > MOST_STEPS:
        raise UsageError(f"more than {MOST_STEPS} steps or epochs: no rack lives that long")


def _check_warmup(request: LaunchRequest) -> None:
    """As far as flags alone tell: both in steps, or both in epochs. See `cautions` for the rest."""
    rise, length = request.warmup, request.steps if request.epochs is None else request.epochs
    if rise and rise.count and length and rise.epochs == (request.epochs is not None) and rise.count >= length:
        unit = "epochs" if rise.epochs else "steps"
        raise UsageError(
            f"--warmup of {rise.count:g} {unit} in a run of {length:g}: the learning rate would only rise",
            remedy=f"a shorter --warmup, or more --{unit}",
        )


def cautions(spec: RunSpec) -> list[str]:
    """What a person should know of a plan before it is begun."""
    found, rise = [], spec.schedule.warmup_steps
    if rise >= spec.steps:
        told = f"the learning rate rises for {rise} steps, and the run has {spec.steps}: it does nothing else"
        found.append(f"{told}; a shorter --warmup, or a longer run")
    if spec.eval_every and not spec.data.test_samples:
        told = f"--evaluate-every {spec.eval_every}: {spec.data.name} has no held-out samples to judge by"
        found.append(f"{told}; the run will not be judged (clusterctl data list shows which datasets have some)")
    return found


def plan_run(
    request: LaunchRequest,
    phones: Sequence[Phone],
    data: DataSpec,
    *,
    memory: Mapping[str, int] | None = None,
    ways: Mapping[str, DeviceConfig] | None = None,
    gpus: Mapping[str, Limits] | None = None,
    now: float | None = None,
) -> RunSpec:
    """Ranks follow the phones' order: ring order; the first phone is the head. `memory`: bytes free, by phone; `ways`:
    how each computes, where that was measured; `gpus`: what their devices can do, of those that were asked."""
    created = time.time() if now is None else now
    request = settled(request)
    named = request.model or DEFAULT_MODEL
    graph = build_graph(named, data, request.freeze)
    model, model_file = _model_and_file(named)
    if request.half and request.backend == "reference":
        raise UsageError("--half: the reference backend stores what it computes", remedy="--backend cpu")
    options = partial(
        _options,
        request,
        graph,
        [(ways or {}).get(phone.name, DeviceConfig()) for phone in phones],
        [(gpus or {}).get(phone.name) for phone in phones],
    )
    batches = _batches(request, graph, phones, data, memory or {}, options=options)
    steps, per_epoch = _steps(request, sum(batches), data.samples), data.samples / sum(batches)
    return RunSpec(
        run_id=new_run_id(Path(model_file).stem or model, created),
        model=model,
        data=data,
        ranks=tuple(map(_rank, range(len(phones)), phones, batches)),
        steps=steps,
        seed=request.seed,
        optimizer=_optimizer(request, sum(batches)),
        schedule=_schedule(request, per_epoch),
        communication=CommunicationSpec(
            request.algorithm,
            request.wire,
            request.overlap,
            request.group,
            request.bucket_bytes,
            request.local_steps,
            request.outer_rate,
            request.outer_momentum,
        ),
        compute=ComputeSpec(
            request.backend,
            request.threads,
            request.memory_bytes,
            request.micro_batch,
            "fp16" if request.half else "fp32",
            request.balance,
            dict(ways or {}),
        ),
        recovery=RecoverySpec(request.checkpoint_every),
        eval_every=request.evaluate_every,
        weights=layout.WEIGHTS_FILE if request.weights else "",
        freeze=request.freeze,
        model_file=model_file,
        created=created,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _optimizer(request: LaunchRequest, global_batch: int) -> OptimizerSpec:
    return OptimizerSpec(
        learning_rate=learning_rate(request, global_batch),
        **_given(
            name=request.optimizer,
            momentum=request.momentum,
            weight_decay=request.weight_decay,
            decay_all=request.decay_all,
            beta2=request.second_momentum,
            epsilon=request.epsilon,
            lars_coefficient=request.trust,
            label_smoothing=request.label_smoothing,
        ),
    )


def _schedule(request: LaunchRequest, per_epoch: float) -> ScheduleSpec:
    every = request.step_every
    return ScheduleSpec(
        warmup_steps=request.warmup.steps(per_epoch) if request.warmup else 0,
        decay_steps=max(1, every.steps(per_epoch)) if every else 0,
        **_given(policy=request.schedule, gamma=request.gamma, power=request.power, min_lr_ratio=request.floor),
    )


def _batches(
    request: LaunchRequest,
    graph: Graph,
    phones: Sequence[Phone],
    data: DataSpec,
    memory: Mapping[str, int],
    *,
    options: Callable[[int], Sequence[Options]],
) -> tuple[int, ...]:
    share = data.samples // len(phones)
    if not share:
        raise UsageError(
            f"{data.name} has {data.samples} samples for {len(phones)} phones: some would be without one",
            remedy="fewer phones with --limit, or another --data",
        )
    if request.batch == AUTO:
        from phone_agent.api.weights import savers

        saving, saves = _saving_bytes(request, graph), savers([phone.switch for phone in phones])
        budgets = [
            max(0, _budget(request, phone, memory) - saving * (rank in saves)) for rank, phone in enumerate(phones)
        ]
        return tuple(min(batch, share) for batch in largest_batches(graph, budgets, options(MOST_BIG_CORES)))
    batches = split_batches(len(phones), request.batch, request.global_batch)
    if max(batches) * len(phones) > data.samples:
        raise UsageError(
            f"{max(batches)} images a phone and step, but {data.name} has only {share} for each",
            remedy="a smaller --batch or --global-batch",
        )
    if request.memory_bytes and request.backend != "reference":
        _check_memory(graph, request.memory_bytes, options(1))
    return batches


def _budget(request: LaunchRequest, phone: Phone, memory: Mapping[str, int]) -> int:
    from phone_agent.api.memory import PERCENT

    if request.memory_bytes:
        return request.memory_bytes
    if phone.name not in memory:
        raise UsageError(f"{phone.name} does not say how much memory it has free", remedy="--memory, such as 2.8GB")
    return memory[phone.name] * PERCENT // 100


def _saving_bytes(request: LaunchRequest, graph: Graph) -> int:
    """What a phone copies to write a checkpoint."""
    from phone_agent.api.memory import checkpoint_bytes

    return checkpoint_bytes(graph, _optimizer(request, 1), request.local_steps, request.outer_momentum)


def _options(
    request: LaunchRequest, graph: Graph, ways: Sequence[DeviceConfig], gpus: Sequence[Limits | None], threads: int
) -> list[Options]:
    """What each phone's plan is made with; `threads` where nobody asked for a number of them."""
    from phone_agent.api.memory import training_options

    return [
        training_options(
            graph,
            _optimizer(request, 1),
            backend=way.backend or request.backend,
            threads=request.threads or threads,
            half=request.half,
            wire=request.wire,
            local_steps=request.local_steps,
            outer_momentum=request.outer_momentum,
            tiles=way.tiles,
            gpu=gpu,
        )
        for way, gpu in zip(ways, gpus, strict=True)
    ]


def build_graph(model: str, data: DataSpec, frozen: tuple[str, ...] = ()) -> Graph:
    """A network that cannot take these images, or has no such layers to freeze, is known before a phone is asked."""
    from phone_agent.api.models import build
    from phone_agent.api.training import FreezeError, freeze
    from phone_agent.contract.errors import AgentError

    try:
        return freeze(build(model, data.classes, data.input_shape), frozen)
    except FreezeError as error:
        raise UsageError(f"--freeze: {error}", remedy=f"clusterctl models show {model}") from None
    except AgentError as error:
        raise UsageError(str(error), remedy="--data synthetic makes up images of the size it takes") from None


def _check_memory(graph: Graph, memory_bytes: int, options: Sequence[Options]) -> None:
    """Refuses where no phone holds even one image within --memory: a batch that does not fit whole, phones compute in
    parts. One thread takes the least: phones may still refuse more."""
    from phone_agent.api.memory import DoesNotFitError, estimate_memory
    from phone_agent.contract.errors import AgentError

    refused: DoesNotFitError | None = None
    for each in dict.fromkeys(options):
        try:
            estimate_memory(graph, 1, replace(each, memory_bytes=memory_bytes))
        except DoesNotFitError as error:
            refused = error
        except AgentError:
            return  # there is no core to ask on this machine; the phones have theirs
        else:
            return
    if refused:
        raise UsageError(f"--memory: {refused}", remedy=f"{refused.remedy}, or a smaller network with --model")


def new_run_id(model: str, created: float) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created))
    short = re.sub(r"[^a-z0-9_.-]+", "-", model.lower())[:40]
    return f"{stamp}-{short}-{secrets.token_hex(2)}"


def _model_and_file(model: str) -> tuple[str, str]:
    """What a RunSpec says of a network: its name, or the function and the file it is staged as."""
    from phone_agent.api.models import is_custom, split_name

    if not is_custom(model):
        return model, ""
    path, function = split_name(model)
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
