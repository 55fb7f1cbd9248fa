"""Autotuning request: which model and batch to tune for, and the time budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from phone_agent.contract.decode import DecodeError, decode_json
from phone_agent.contract.errors import BadRequestError

TIME_SHARES = {"cpu": 0.2, "opencl": 0.5, "hybrid": 0.2, "dense": 0.1}  # of the time budget, by part of the search
GRACE_S = 60.0  # per part, to start, to compile kernels, and to finish the current measurement


@dataclass(frozen=True)
class TuneRequest:
    model: str
    batch: int
    seconds: float
    tiles: dict[str, int] = field(default_factory=dict)  # the best OpenCL tiles, once measured


def read_tune_request(text: str) -> TuneRequest:
    try:
        request = decode_json(TuneRequest, text)
    except DecodeError as error:
        raise BadRequestError(f"invalid tune request: {error}") from None
    if request.batch < 1 or request.seconds <= 0:
        raise BadRequestError(f"batch {request.batch}, {request.seconds:g} s: both must be positive")
    return request
