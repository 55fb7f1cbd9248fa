"""Resolves a request: decides every option once, checks them, opens what they name. No phone is involved.

Explicit flags override the recipe, the recipe overrides the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from orchestrator.errors import UsageError
from orchestrator.launch.dataset import Dataset, find_dataset
from orchestrator.launch.defaults import DEFAULTS
from orchestrator.launch.initial_state import InitialState, make_initial_state, read_weights_file
from orchestrator.launch.recipes import get_recipe
from orchestrator.launch.request import LaunchRequest, flag_of, given_options
from orchestrator.plan.batch import TWO_VALUES
from phone_agent.contract.choices import FP32_ALGORITHMS
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import (
    CommunicationSpec,
    ComputeSpec,
    DataSpec,
    OptimizerSpec,
    RecoverySpec,
    ScheduleSpec,
)

if TYPE_CHECKING:
    from phone_agent.api.models import Graph

MAX_STEPS = 10**9
MIN_BUCKET_BYTES = 64 * 1024

_ALTERNATIVES = (
    ("steps", "epochs"),
    ("batch", "global_batch"),
    ("schedule.warmup_steps", "schedule.warmup_epochs"),
    ("schedule.decay_steps", "schedule.decay_epochs"),
)
_USED_BY = {  # options that only some schedules or optimizers use
    "schedule.decay_steps": ("schedule.policy", ("step",)),
    "schedule.decay_epochs": ("schedule.policy", ("step",)),
    "schedule.gamma": ("schedule.policy", ("step",)),
    "schedule.power": ("schedule.policy", ("polynomial",)),
    "schedule.min_lr_ratio": ("schedule.policy", ("polynomial", "cosine")),
    "optimizer.lars_coefficient": ("optimizer.name", ("lars",)),
    "optimizer.beta2": ("optimizer.name", ("lamb",)),
    "optimizer.epsilon": ("optimizer.name", ("lamb",)),
}
_ADAPTIVE_RATES = {  # LARS and LAMB scale steps by the norm of the weights: their rates are not comparable with SGD's
    "lars": "start with --lr 1.6 --lars-coefficient 0.02 for a global batch of 1024, less for smaller ones",
    "lamb": "start with --lr 0.005",
}
_SGD_RATE = "start with --lr 0.1 for a global batch of 256, and scale it in proportion to the batch size"

Options = Mapping[str, Any]  # by path, such as optimizer.momentum


@dataclass(frozen=True)
class Duration:
    """A number of steps or of epochs. How many steps an epoch has is known once the batches are."""

    count: float
    epochs: bool = False

    def steps(self, steps_per_epoch: float) -> int:
        return round(self.count * steps_per_epoch) if self.epochs else int(self.count)


@dataclass(frozen=True)
class ResolvedRequest:
    """Everything about a run that does not depend on the phones."""

    recipe: str | None
    model: str
    graph: Graph
    dataset: Dataset
    replicate_data: bool | None  # None: as the data is already stored on the phones
    initial_state: InitialState
    freeze: tuple[str, ...]
    length: Duration
    batch: int | Literal["auto"] | None  # per phone
    global_batch: int | None
    seed: int
    eval_every: int
    optimizer: OptimizerSpec
    learning_rate_batch: int | None  # scale the learning rate linearly from this global batch; None: use it as it is
    schedule: ScheduleSpec  # without warmup_steps and decay_steps
    warmup: Duration
    decay: Duration
    communication: CommunicationSpec
    compute: ComputeSpec
    recovery: RecoverySpec


def resolve(request: LaunchRequest, *, spares: tuple[str, ...] = (), dataset: Dataset | None = None) -> ResolvedRequest:
    """`spares`: the phones that `request.recovery.spares` selects; `dataset`: instead of `request.data.source`."""
    given = given_options(request)
    options = merge_options(given)
    check_options(given, options)
    file = read_weights_file(request.weights) if request.weights else None
    if dataset is None:
        augment, on_corrupt = options["data.augment"], options["data.on_corrupt"]
        dataset = find_dataset(options["data.source"], options["model"], augment=augment, on_corrupt=on_corrupt)
    graph = build_graph(options["model"], dataset.spec, options["freeze"])
    _check_min_batch(options, graph)
    initial_state = make_initial_state(
        options["model"],
        graph,
        file,
        options["seed"],
        class_names=dataset.class_names,
        new_head=request.new_head,
    )
    return ResolvedRequest(
        recipe=request.recipe,
        model=options["model"],
        graph=graph,
        dataset=dataset,
        replicate_data=options.get("data.replicated"),
        initial_state=initial_state,
        freeze=options["freeze"],
        length=_duration(options, "steps", "epochs"),
        batch=options.get("batch"),
        global_batch=options.get("global_batch"),
        seed=options["seed"],
        eval_every=options["eval_every"],
        optimizer=_optimizer(options),
        learning_rate_batch=_learning_rate_batch(given, request.recipe),
        schedule=_schedule(options),
        warmup=_duration(options, "schedule.warmup_steps", "schedule.warmup_epochs"),
        decay=_duration(options, "schedule.decay_steps", "schedule.decay_epochs"),
        communication=CommunicationSpec(**_group(options, "communication")),
        compute=ComputeSpec(**_group(options, "compute")),
        recovery=RecoverySpec(
            **_group(options, "recovery")
            | checkpoint_interval(options["recovery.checkpoint_every"])
            | {"spares": spares}
        ),
    )


def merge_options(given: Options) -> dict[str, Any]:
    """Explicit options over those of the recipe over the defaults. Of two alternatives, the upper layer decides."""
    recipe = get_recipe(given["recipe"]).options if "recipe" in given else {}
    merged = dict(DEFAULTS)
    for layer in (recipe, given):
        for pair in _ALTERNATIVES:
            if layer.keys() & set(pair):
                merged = {path: value for path, value in merged.items() if path not in pair}
        merged |= layer
    return merged


def build_graph(model: str, data: DataSpec, frozen: tuple[str, ...] = ()) -> Graph:
    """Fails for a network that does not take these images, and for unknown layers to freeze."""
    from phone_agent.api.models import build
    from phone_agent.api.training import freeze
    from phone_agent.contract.errors import BadRequestError

    try:
        return freeze(build(model, data.classes, data.input_shape), frozen)
    except BadRequestError as error:
        raise UsageError(f"--freeze: {error}", remedy=f"clusterctl models show {model}") from None
    except AgentError as error:
        raise UsageError(str(error), remedy="--data synthetic: random images of the right size") from None


def check_options(given: Options, options: Options) -> None:
    """All that can be wrong with the options alone. `given`: the explicit ones; `options`: all of them, merged."""
    from phone_agent.api.models import model
    from phone_agent.api.training import check_optimizer, check_schedule

    _check_choices(given)
    _check_alternatives(given)
    _check_numbers(given, options)
    try:
        model(options["model"])
    except AgentError as error:
        raise UsageError(str(error), remedy="clusterctl models list") from None
    try:
        check_optimizer(_optimizer(options))
        check_schedule(ScheduleSpec(**_group(options, "schedule") | {"decay_steps": int(_has_decay(options))}))
    except AgentError as error:
        raise UsageError(str(error), remedy="clusterctl launch --help") from None
    _check_warmup(given)
    _check_wire(options)
    _check_learning_rate(given, options)
    _check_unused(given, options)


def _has_decay(options: Options) -> bool:
    return _duration(options, "schedule.decay_steps", "schedule.decay_epochs").count > 0


def _check_min_batch(options: Options, graph: Graph) -> None:
    """--global-batch is checked when the number of phones is known."""
    for path in ("batch", "compute.micro_batch"):
        size = options.get(path)
        if isinstance(size, int) and 0 < size < graph.min_batch:
            flag = flag_of(path, size)
            raise UsageError(
                f"{flag} {size}: {graph.name} cannot be trained on single images of this size. {TWO_VALUES}",
                remedy=f"{flag} {graph.min_batch} or more, or larger images",
            )


def _check_choices(given: Options) -> None:
    """The command line checks choices itself; this is for requests made in code."""
    for path, choices in _choices(LaunchRequest).items():
        if path in given and given[path] not in choices:
            flag = flag_of(path, given[path])
            raise UsageError(f"{flag} {given[path]}: unknown value; one of: {', '.join(choices)}")


def _choices(group: type[Any], prefix: str = "") -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    hints = get_type_hints(group)
    for each in fields(group):
        if isinstance(hints[each.name], type):
            found |= _choices(hints[each.name], f"{each.name}.")
        literals = [part for part in get_args(hints[each.name]) if get_origin(part) is Literal]
        if literals and each.name != "batch":
            found[prefix + each.name] = get_args(literals[0])
    return found


def _check_alternatives(given: Options) -> None:
    for first, second in _ALTERNATIVES:
        if first in given and second in given:
            flags = f"{flag_of(first, given[first])} and {flag_of(second, given[second])}"
            raise UsageError(f"{flags} cannot be combined", remedy="use only one of them")


def _check_numbers(given: Options, options: Options) -> None:
    for path, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag_of(path, value)} {value}: must be finite")
    for path in ("schedule.decay_steps", "schedule.decay_epochs"):
        if given.get(path) == 0:
            raise UsageError(
                f"{flag_of(path, 0)} 0: the learning rate would decay at every step",
                remedy="--decay-steps 500, or --decay-epochs 30",
            )
    if 0 < options["communication.bucket_bytes"] < MIN_BUCKET_BYTES:
        raise UsageError(
            f"--bucket-size of {options['communication.bucket_bytes']} bytes: below 64KiB latency dominates",
            remedy="--bucket-size 4MB, or leave it out",
        )
    if max(options.get("steps", 0), options.get("epochs", 0)) > MAX_STEPS:
        raise UsageError(f"more than {MAX_STEPS} steps or epochs")


def _check_warmup(given: Options) -> None:
    """As far as the flags alone show: warm-up and length both in steps, or both in epochs. See `cautions` too."""
    for unit in ("steps", "epochs"):
        warmup, length = given.get(f"schedule.warmup_{unit}"), given.get(unit)
        if warmup and length and warmup >= length:
            raise UsageError(
                f"--warmup-{unit} {warmup:g} in a run of {length:g} {unit}: the warm-up would never end",
                remedy=f"use a shorter --warmup-{unit}, or more --{unit}",
            )


def _check_wire(options: Options) -> None:
    algorithm, wire = options["communication.algorithm"], options["communication.wire"]
    if algorithm in FP32_ALGORITHMS and wire not in {"fp32", "auto"}:
        raise UsageError(
            f"--algorithm {algorithm} sends fp32 only, not {wire}",
            remedy=f"--algorithm ring or hierarchical with --wire {wire}",
        )
    if options["communication.group_size"] and algorithm not in {"hierarchical", "auto"}:
        raise UsageError(f"--algorithm {algorithm} has no groups", remedy="--algorithm hierarchical or auto")
    if options["compute.activations"] == "fp16" and options["compute.backend"] == "reference":
        raise UsageError("--activations fp16: the reference backend computes in fp32 only", remedy="--backend cpu")


def _check_learning_rate(given: Options, options: Options) -> None:
    """Neither the default rate nor that of a recipe suits another kind of optimizer."""
    recipe = given.get("recipe")
    tuned_for = get_recipe(recipe).options["optimizer.name"] if recipe else DEFAULTS["optimizer.name"]
    chosen = options["optimizer.name"]
    if "optimizer.learning_rate" in given or chosen == tuned_for or not _ADAPTIVE_RATES.keys() & {chosen, tuned_for}:
        return
    source = f"the rate of recipe {recipe}" if recipe else f"the default rate {DEFAULTS['optimizer.learning_rate']:g}"
    raise UsageError(
        f"--optimizer {chosen} needs --lr: {source} is for {tuned_for}",
        remedy=_ADAPTIVE_RATES.get(chosen, _SGD_RATE),
    )


def _check_unused(given: Options, options: Options) -> None:
    """Explicit options without effect are errors. Those of a recipe are not: a flag may have changed the optimizer."""
    for path, (chooser, users) in _USED_BY.items():
        if path in given and options[chooser] not in users:
            flag, choice = flag_of(path, given[path]), flag_of(chooser, options[chooser])
            raise UsageError(
                f"{flag} has no effect with {choice} {options[chooser]}",
                remedy=f"use {choice} {' or '.join(users)}, or leave out {flag}",
            )
    for path in ("communication.outer_learning_rate", "communication.outer_momentum"):
        if path in given and options["communication.local_steps"] == 1:
            flag = flag_of(path, given[path])
            raise UsageError(
                f"{flag} has no effect without --local-steps", remedy=f"use --local-steps 16, or leave out {flag}"
            )
    if "new_head" in given and "weights" not in given:
        flag = flag_of("new_head", given["new_head"])
        raise UsageError(f"{flag} has no effect without --weights", remedy=f"use --weights FILE, or leave out {flag}")


def _duration(options: Options, in_steps: str, in_epochs: str) -> Duration:
    if in_epochs in options:
        return Duration(options[in_epochs], epochs=True)
    return Duration(options[in_steps])


def _group(options: Options, name: str) -> dict[str, Any]:
    return {
        field: value
        for path, value in options.items()
        for group, _, field in [path.rpartition(".")]
        if group == name and not field.endswith("_epochs")
    }


def _optimizer(options: Options) -> OptimizerSpec:
    return OptimizerSpec(**_group(options, "optimizer"))


def checkpoint_interval(every: int | timedelta) -> dict[str, Any]:
    """Fields of a RecoverySpec."""
    if isinstance(every, timedelta):
        return {"checkpoint_every": 0, "checkpoint_minutes": every.total_seconds() / 60}
    return {"checkpoint_every": every, "checkpoint_minutes": 0.0}


def _schedule(options: Options) -> ScheduleSpec:
    return ScheduleSpec(**_group(options, "schedule") | {"warmup_steps": 0, "decay_steps": 0})


def _learning_rate_batch(given: Options, recipe: str | None) -> int | None:
    if recipe is None or "optimizer.learning_rate" in given:
        return None
    batch: int = get_recipe(recipe).options["global_batch"]
    return batch
