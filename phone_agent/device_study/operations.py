"""Where a step's time goes, by kind of work: forward and backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from phone_agent import models
from phone_agent.contract.device_study import PROFILED, Operation, StudyRequest
from phone_agent.device.isolated import IsolatedError, run_isolated
from phone_agent.device_study import networks, steps
from phone_agent.device_study.cases import Means

RUNS = 3


def operations(request: StudyRequest, means: Means) -> Iterator[Operation]:
    graphs = [networks.build(*PROFILED), *map(models.build, request.models)]
    for backend in means.usable(request):
        for graph in graphs:
            yield from _of(steps.Place(graph, backend, means.threads), request.batch, means)


def _of(place: steps.Place, batch: int, means: Means) -> Iterator[Operation]:
    name = place.graph.name
    try:
        found = run_isolated(lambda: _profile(place, batch, means.pace.model_step_s / 2), means.pace.case_limit_s)
    except IsolatedError as error:
        yield Operation(name, place.backend, 0, "", "", 0.0, 0, str(error))
        return
    for kind, direction, seconds, flops in found["shares"]:
        yield Operation(name, place.backend, found["batch"], kind, direction, seconds, flops)


def _profile(place: steps.Place, batch: int, step_s: float) -> dict[str, Any]:
    batch = steps.fitting_batch(place, batch, step_s)
    made = steps.compiled(place, batch)
    made.executable.loss_and_gradients(made.images, made.labels, 1.0)
    profile = getattr(made.executable, "profile", None)
    if profile is None:
        raise IsolatedError(f"the {place.backend} backend does not time its steps one by one")
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for one in profile(made.images, made.labels, runs=RUNS):
        total = sums[one.kind, one.direction]
        total[0] += one.seconds
        total[1] += one.flops
    return {"batch": batch, "shares": [(*key, seconds, int(flops)) for key, (seconds, flops) in sums.items()]}
