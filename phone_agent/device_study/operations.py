"""Profile of a training step by kind of operation, forward and backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from phone_agent import models
from phone_agent.contract.device_study import PROFILED, Operation, StudyRequest
from phone_agent.device.isolated import IsolatedError, run_isolated
from phone_agent.device_study import networks, steps
from phone_agent.device_study.cases import StudyContext

RUNS = 3


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
    for one in profile(made.images, made.labels, runs=RUNS):
        total = sums[one.kind, one.direction]
        total[0] += one.seconds
        total[1] += one.flops
    return {"batch": batch, "totals": [(*key, seconds, int(flops)) for key, (seconds, flops) in sums.items()]}
