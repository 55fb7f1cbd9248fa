"""From a resolved request and the phones that take part to the RunSpec that every phone reads."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.launch.resolve import ResolvedRequest
from orchestrator.plan.batch import largest_batches, split_global_batch
from phone_agent.contract import layout
from phone_agent.contract.choices import AUTO
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import DeviceConfig, OptimizerSpec, RankSpec, RunSpec, ScheduleSpec

if TYPE_CHECKING:
    from phone_agent.api.memory import Limits, Options

MAX_BIG_CORES = 8  # of a phone; more threads need more memory, so a batch planned for 8 fits phones with fewer
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")


@dataclass(frozen=True)
class PhoneFacts:
    """What is known about the phones, by name. A phone that is missing here is treated like the others."""

    free_memory: Mapping[str, int] = field(default_factory=dict)  # bytes
    devices: Mapping[str, DeviceConfig] = field(default_factory=dict)  # how to compute, as `clusterctl tune` measured
    gpus: Mapping[str, Limits] = field(default_factory=dict)


NO_FACTS = PhoneFacts()


def build_run_spec(
    resolved: ResolvedRequest, phones: Sequence[Phone], facts: PhoneFacts = NO_FACTS, *, now: float | None = None
) -> RunSpec:
    """Ranks follow the order of the phones, which is ring order. The first phone is the head."""
    created = time.time() if now is None else now
    model, model_file = _model_and_file(resolved.model)
    batches = _batches(resolved, phones, facts)
    global_batch, data = sum(batches), resolved.dataset.spec
    steps_per_epoch = data.samples / global_batch
    return RunSpec(
        run_id=new_run_id(Path(model_file).stem or model, created),
        model=model,
        data=data,
        ranks=make_ranks(phones, batches),
        steps=_total_steps(resolved, steps_per_epoch),
        seed=resolved.seed,
        eval_every=resolved.eval_every,
        optimizer=scale_learning_rate(resolved, global_batch),
        schedule=_schedule(resolved, steps_per_epoch),
        communication=resolved.communication,
        compute=replace(resolved.compute, devices=dict(facts.devices), min_micro_batch=resolved.graph.min_batch),
        recovery=resolved.recovery,
        weights=layout.WEIGHTS_FILE if resolved.initial_state.weights else "",
        freeze=resolved.freeze,
        model_file=model_file,
        created=created,
    )


def cautions(spec: RunSpec) -> list[str]:
    """What the user should know about a run spec before it is started."""
    found, warmup = [], spec.schedule.warmup_steps
    if warmup >= spec.steps:
        found.append(
            f"the learning rate warms up for {warmup} steps, but the run has only {spec.steps}: "
            "use a shorter warm-up (--warmup-steps, --warmup-epochs) or a longer run"
        )
    if spec.eval_every and not spec.data.test_samples:
        found.append(
            f"--eval-every {spec.eval_every} has no effect: {spec.data.name} has no test samples "
            "(clusterctl data list shows which datasets have some)"
        )
    return found


def make_ranks(phones: Sequence[Phone], batches: Sequence[int]) -> tuple[RankSpec, ...]:
    return tuple(
        RankSpec(rank, phone.name, phone.switch, phone.port, str(phone.address), batch)
        for rank, (phone, batch) in enumerate(zip(phones, batches, strict=True))
    )


def new_run_id(model: str, created: float) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created))
    short = re.sub(r"[^a-z0-9_.-]+", "-", model.lower())[:40]
    return f"{stamp}-{short}-{secrets.token_hex(2)}"


def scale_learning_rate(resolved: ResolvedRequest, global_batch: int) -> OptimizerSpec:
    """A recipe gives its learning rate for one global batch: others use the linear scaling rule."""
    from phone_agent.api.training import linear_scaling

    optimizer, reference = resolved.optimizer, resolved.learning_rate_batch
    if reference is None:
        return optimizer
    return replace(optimizer, learning_rate=linear_scaling(optimizer.learning_rate, reference, global_batch))


def _schedule(resolved: ResolvedRequest, steps_per_epoch: float) -> ScheduleSpec:
    decay = resolved.decay
    return replace(
        resolved.schedule,
        warmup_steps=resolved.warmup.steps(steps_per_epoch),
        decay_steps=max(1, decay.steps(steps_per_epoch)) if decay.count else 0,
    )


def _total_steps(resolved: ResolvedRequest, steps_per_epoch: float) -> int:
    length = resolved.length
    return max(1, math.ceil(length.count * steps_per_epoch)) if length.epochs else int(length.count)


def _model_and_file(model: str) -> tuple[str, str]:
    """The network in a RunSpec: its name, or for a custom one its function and the name of the staged file."""
    from phone_agent.api.models import is_custom, split_name

    if not is_custom(model):
        return model, ""
    path, function = split_name(model)
    if not _FILE_NAME.fullmatch(path.name):
        raise UsageError(
            f"--model {path.name}: not a portable file name", remedy="use letters, digits, '_', '-' and '.' only"
        )
    return function, path.name


def _batches(resolved: ResolvedRequest, phones: Sequence[Phone], facts: PhoneFacts) -> tuple[int, ...]:
    data, least = resolved.dataset.spec, resolved.graph.min_batch
    samples_per_phone = data.samples // len(phones)
    if samples_per_phone < least:
        raise UsageError(
            f"{data.name} has {data.samples} samples for {len(phones)} phones: at least {least} per phone are needed",
            remedy="use fewer phones (--limit) or another dataset (--data)",
        )
    if resolved.batch == AUTO:
        return tuple(min(batch, samples_per_phone) for batch in _largest_batches(resolved, phones, facts))
    if resolved.global_batch is not None:
        batches = split_global_batch(resolved.global_batch, len(phones), least)
    else:
        batches = (int(resolved.batch or 0),) * len(phones)
    if max(batches) * len(phones) > data.samples:
        raise UsageError(
            f"batch size {max(batches)} per phone, but {data.name} has only {samples_per_phone} samples per phone",
            remedy="use a smaller --batch or --global-batch",
        )
    if resolved.compute.memory_bytes and resolved.compute.backend != "reference":
        _check_memory(resolved, _memory_options(resolved, phones, facts, default_threads=1))
    return batches


def _largest_batches(resolved: ResolvedRequest, phones: Sequence[Phone], facts: PhoneFacts) -> tuple[int, ...]:
    """As many images as the memory of each phone holds. Phones that write checkpoints need some of it for that."""
    from phone_agent.api.memory import checkpoint_bytes
    from phone_agent.api.training import checkpoint_ranks

    communication = resolved.communication
    reserved = checkpoint_bytes(
        resolved.graph, resolved.optimizer, communication.local_steps, communication.outer_momentum
    )
    writers = checkpoint_ranks([phone.switch for phone in phones])
    budgets = [
        max(0, _memory_budget(resolved, phone, facts) - reserved * (rank in writers))
        for rank, phone in enumerate(phones)
    ]
    options = _memory_options(resolved, phones, facts, default_threads=MAX_BIG_CORES)
    return largest_batches(resolved.graph, budgets, options)


def _memory_budget(resolved: ResolvedRequest, phone: Phone, facts: PhoneFacts) -> int:
    from phone_agent.api.memory import PERCENT

    if resolved.compute.memory_bytes:
        return resolved.compute.memory_bytes
    if phone.name not in facts.free_memory:
        raise UsageError(f"{phone.name} does not report its free memory", remedy="--memory, such as 2.8GB")
    return facts.free_memory[phone.name] * PERCENT // 100


def _memory_options(
    resolved: ResolvedRequest, phones: Sequence[Phone], facts: PhoneFacts, *, default_threads: int
) -> list[Options]:
    """The options that each phone compiles its plan with."""
    from phone_agent.api.memory import training_options

    communication, compute = resolved.communication, resolved.compute
    devices = [facts.devices.get(phone.name, DeviceConfig()) for phone in phones]
    return [
        training_options(
            resolved.graph,
            resolved.optimizer,
            backend=device.backend or compute.backend,
            threads=compute.threads or default_threads,
            half=compute.activations == "fp16",
            wire=communication.wire,
            local_steps=communication.local_steps,
            outer_momentum=communication.outer_momentum,
            tiles=device.tiles,
            gpu=facts.gpus.get(phone.name),
        )
        for phone, device in zip(phones, devices, strict=True)
    ]


def _check_memory(resolved: ResolvedRequest, options: Sequence[Options]) -> None:
    """Fails if no phone can hold even the fewest images within --memory. Larger batches are split there.

    Checked with one thread, which needs the least memory: phones may still refuse more.
    """
    from phone_agent.api.memory import DoesNotFitError, estimate_memory

    failure: DoesNotFitError | None = None
    for each in dict.fromkeys(options):
        try:
            estimate_memory(
                resolved.graph, resolved.graph.min_capacity, replace(each, memory_bytes=resolved.compute.memory_bytes)
            )
        except DoesNotFitError as error:
            failure = error
        except AgentError:
            return  # this computer has no compute core to plan with; the phones check it themselves
        else:
            return
    if failure:
        raise UsageError(f"--memory: {failure}", remedy=f"{failure.remedy}, or choose a smaller model with --model")
