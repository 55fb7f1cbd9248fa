"""The networks of the study, and the sweeps over width and depth: what a step takes, in time and in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from phone_agent import models
from phone_agent.contract.device_study import Case, StudyRequest
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.sizes import format_distinct_sizes
from phone_agent.device.isolated import IsolatedError, run_isolated
from phone_agent.device_study import networks, steps
from phone_agent.device_study.time_limits import Pace
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options
from phone_agent.nn.summary import forward_flops, training_flops

NO_ANSWER = frozenset({ErrorCode.TIMED_OUT, ErrorCode.BAD_ANSWER})
MOST_LOST = 3  # cases of a sweep that take too long, before a backend is given up
LONGEST_REASON = 160  # a driver may tell a whole compiler's output


@dataclass(frozen=True)
class Means:
    """What there is to study with. `missing`: why a backend cannot be used, by its name."""

    threads: int
    budget_bytes: int | None
    missing: dict[str, AgentError]
    pace: Pace

    def usable(self, request: StudyRequest) -> list[str]:
        """The backends there are. The first alone where the study is quick: a GPU's driver compiles for minutes."""
        found = [name for name in request.backends if name not in self.missing]
        return found[:1] if request.quick else found


def model_cases(request: StudyRequest, means: Means) -> Iterator[Case]:
    for name in request.models:
        for backend in request.backends:
            place = steps.Place(models.build(name), backend, means.threads)
            yield _measured(describe(place, "model", (0, 0), request.batch), place, means, means.pace.model_step_s)


def sweep_cases(request: StudyRequest, means: Means) -> Iterator[Case]:
    """A missing backend was told with the models. One that lost some cases is not tried on and on."""
    lost: Counter[str] = Counter()
    for family, backend, depth, width in product(
        request.families, means.usable(request), request.depths, request.widths
    ):
        place = steps.Place(networks.build(family, width, depth), backend, means.threads)
        case = describe(place, family, (width, depth), request.batch)
        if lost[backend] >= MOST_LOST:
            yield replace(
                case, why=f"not tried: {backend} gave no answer to {MOST_LOST} others", code=ErrorCode.CANCELLED
            )
            continue
        measured = _measured(case, place, means, means.pace.sweep_step_s)
        lost[backend] += measured.code in NO_ANSWER
        yield measured


def describe(place: steps.Place, family: str, size: tuple[int, int], batch: int) -> Case:
    """What can be said before it runs. `size`: width and depth."""
    graph = place.graph
    return Case(
        family=family,
        name=graph.name,
        width=size[0],
        depth=size[1],
        backend=place.backend,
        parameters=graph.parameter_count,
        forward_flops=forward_flops(graph),
        training_flops=training_flops(graph),
        batch_asked=batch,
        planned_bytes=estimate_memory(graph, batch, Options(threads=place.threads)).total,
    )


def _measured(case: Case, place: steps.Place, means: Means, step_s: float) -> Case:
    """Out of memory is foreseen, and not tried."""
    if lacking := means.missing.get(case.backend):
        return replace(case, why=str(lacking), code=lacking.code)
    if means.budget_bytes is not None and case.planned_bytes > means.budget_bytes:
        need, there_is = format_distinct_sizes(case.planned_bytes, means.budget_bytes)
        return replace(
            case, why=f"out of memory, predicted: needs {need}, the budget is {there_is}", code=ErrorCode.OUT_OF_MEMORY
        )
    try:
        found = run_isolated(lambda: _time(place, case.batch_asked, step_s, means.pace), means.pace.case_limit_s)
        return replace(case, **found)
    except IsolatedError as error:
        return replace(case, why=str(error), code=error.code)


def _time(place: steps.Place, batch: int, step_s: float, pace: Pace) -> dict[str, Any]:
    batch = steps.fitting_batch(place, batch, step_s)
    step = steps.training(place, batch)
    step()
    trained = steps.repeat(step, pace.repeat_s)
    del step
    infer = steps.inference(place, batch)
    infer()
    inferred = steps.repeat(infer, pace.repeat_s)
    return {
        "batch": batch,
        "training_s": trained.median_s,
        "inference_s": inferred.median_s,
        "runs": trained.count,
        "resident_bytes": trained.resident_bytes,
    }


def missing(backend: str, threads: int) -> AgentError | None:
    """Why it cannot be used here; None where it can. Tried out, in a process of its own: drivers crash."""
    place = steps.Place(networks.build("separable", 8, 1), backend, threads)

    def train_once() -> None:
        steps.training(place, 1)()

    try:
        run_isolated(train_once, 120.0)
    except AgentError as error:
        first = (str(error).strip().splitlines() or ["it would not say why"])[0][:LONGEST_REASON]
        return AgentError(first, code=error.code)
    return None
