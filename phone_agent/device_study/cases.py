"""Step time and memory of the models and of networks swept over width and depth; their profile by operation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from phone_agent import models
from phone_agent.contract.device_study import PROFILED, Case, Operation, StudyRequest
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.sizes import format_distinct_sizes
from phone_agent.device.isolated import IsolatedError, run_isolated
from phone_agent.device_study import networks, steps
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options
from phone_agent.nn.summary import forward_flops, training_flops


@dataclass(frozen=True)
class TimeLimits:
    """In seconds. A step that would take longer than `*_step_s` is measured with a smaller batch."""

    model_step_s: float
    sweep_step_s: float
    repeat_s: float  # per case, for training and again for inference
    load_s: float  # per activity
    interference_s: float  # per situation
    case_limit_s: float  # a case that hangs or compiles too long is killed


DEFAULT = TimeLimits(
    model_step_s=3.0, sweep_step_s=0.5, repeat_s=0.3, load_s=5.0, interference_s=5.0, case_limit_s=90.0
)
QUICK = TimeLimits(model_step_s=1.5, sweep_step_s=0.2, repeat_s=0.05, load_s=1.0, interference_s=1.0, case_limit_s=40.0)


NO_RESULT = frozenset({ErrorCode.TIMED_OUT, ErrorCode.BAD_ANSWER})
PROFILED_RUNS = 3
MAX_FAILURES = 3  # cases without a result before a sweep skips the backend
MAX_REASON_CHARS = 160  # a driver may return the full compiler output


@dataclass(frozen=True)
class StudyContext:
    """`unavailable`: why a backend cannot be used, by name."""

    threads: int
    budget_bytes: int | None
    unavailable: dict[str, AgentError]
    limits: TimeLimits

    def usable(self, request: StudyRequest) -> list[str]:
        """The available backends; only the first in a quick study, since a GPU driver compiles for minutes."""
        names = [name for name in request.backends if name not in self.unavailable]
        return names[:1] if request.quick else names


def model_cases(request: StudyRequest, context: StudyContext) -> Iterator[Case]:
    for name in request.models:
        for backend in request.backends:
            workload = steps.Workload(models.build(name), backend, context.threads)
            yield _measure(
                describe(workload, "model", (0, 0), request.batch), workload, context, context.limits.model_step_s
            )


def sweep_cases(request: StudyRequest, context: StudyContext) -> Iterator[Case]:
    """Unavailable backends were reported with the models. A backend that fails repeatedly is skipped."""
    failures: Counter[str] = Counter()
    for family, backend, depth, width in product(
        request.families, context.usable(request), request.depths, request.widths
    ):
        workload = steps.Workload(networks.build(family, width, depth), backend, context.threads)
        case = describe(workload, family, (width, depth), request.batch)
        if failures[backend] >= MAX_FAILURES:
            yield replace(
                case,
                why=f"skipped: {backend} gave no result for {MAX_FAILURES} other networks",
                code=ErrorCode.CANCELLED,
            )
            continue
        measured = _measure(case, workload, context, context.limits.sweep_step_s)
        failures[backend] += measured.code in NO_RESULT
        yield measured


def describe(workload: steps.Workload, family: str, size: tuple[int, int], batch: int) -> Case:
    """What is known before the run. `size`: width and depth."""
    graph = workload.graph
    return Case(
        family=family,
        name=graph.name,
        width=size[0],
        depth=size[1],
        backend=workload.backend,
        parameters=graph.parameter_count,
        forward_flops=forward_flops(graph),
        training_flops=training_flops(graph),
        batch_requested=batch,
        planned_bytes=estimate_memory(graph, batch, Options(threads=workload.threads)).total,
    )


def _measure(case: Case, workload: steps.Workload, context: StudyContext, step_s: float) -> Case:
    """Skips cases that are predicted to run out of memory."""
    if reason := context.unavailable.get(case.backend):
        return replace(case, why=str(reason), code=reason.code)
    if context.budget_bytes is not None and case.planned_bytes > context.budget_bytes:
        required, available = format_distinct_sizes(case.planned_bytes, context.budget_bytes)
        return replace(
            case,
            why=f"predicted to run out of memory: needs {required}, the budget is {available}",
            code=ErrorCode.OUT_OF_MEMORY,
        )
    try:
        found = run_isolated(
            lambda: _time(workload, case.batch_requested, step_s, context.limits), context.limits.case_limit_s
        )
        return replace(case, **found)
    except IsolatedError as error:
        return replace(case, why=str(error), code=error.code)


def _time(workload: steps.Workload, batch: int, step_s: float, limits: TimeLimits) -> dict[str, Any]:
    batch = steps.fitting_batch(workload, batch, step_s)
    step = steps.training(workload, batch)
    step()
    trained = steps.repeat(step, limits.repeat_s)
    del step
    infer = steps.inference(workload, batch)
    infer()
    inferred = steps.repeat(infer, limits.repeat_s)
    return {
        "batch": batch,
        "training_s": trained.median_s,
        "inference_s": inferred.median_s,
        "runs": trained.count,
        "resident_bytes": trained.resident_bytes,
    }


def unavailable(backend: str, threads: int) -> AgentError | None:
    """Why the backend cannot be used; None if it can. Tested in a separate process, since drivers crash."""
    workload = steps.Workload(networks.build("separable", 8, 1), backend, threads)

    def train_once() -> None:
        steps.training(workload, 1)()

    try:
        run_isolated(train_once, 120.0)
    except AgentError as error:
        first = (str(error).strip().splitlines() or ["unknown reason"])[0][:MAX_REASON_CHARS]
        return AgentError(first, code=error.code)
    return None


def operations(request: StudyRequest, context: StudyContext) -> Iterator[Operation]:
    graphs = [networks.build(*PROFILED), *map(models.build, request.models)]
    for backend in context.usable(request):
        for graph in graphs:
            yield from _profile_network(steps.Workload(graph, backend, context.threads), request.batch, context)


def _profile_network(workload: steps.Workload, batch: int, context: StudyContext) -> Iterator[Operation]:
    name = workload.graph.name
    try:
        found = run_isolated(
            lambda: _profile(workload, batch, context.limits.model_step_s / 2), context.limits.case_limit_s
        )
    except IsolatedError as error:
        yield Operation(name, workload.backend, 0, "", "", 0.0, 0, str(error))
        return
    for kind, direction, seconds, flops in found["totals"]:
        yield Operation(name, workload.backend, found["batch"], kind, direction, seconds, flops)


def _profile(workload: steps.Workload, batch: int, step_s: float) -> dict[str, Any]:
    batch = steps.fitting_batch(workload, batch, step_s)
    made = steps.compiled(workload, batch)
    made.executable.loss_and_gradients(made.images, made.labels, 1.0)
    profile = getattr(made.executable, "profile", None)
    if profile is None:
        raise IsolatedError(f"the {workload.backend} backend has no profiler")
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for one in profile(made.images, made.labels, runs=PROFILED_RUNS):
        total = sums[one.kind, one.direction]
        total[0] += one.seconds
        total[1] += one.flops
    return {"batch": batch, "totals": [(*key, seconds, int(flops)) for key, (seconds, flops) in sums.items()]}
