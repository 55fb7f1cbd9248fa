"""Time an allreduce between the phones and compare it with what their links allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.fleet import Fleet
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.inventory.ring_traffic import interleaved
from orchestrator.launch.mpi_job import run_mpi_job
from orchestrator.plan.link_rate import allreduce_limit_s, bytes_per_second
from phone_agent.contract.replies import AllreduceReport

ALGORITHMS = ("ring", "hierarchical", "mpi", "chunkwise")
ROUNDING_ALGORITHMS = ("ring", "hierarchical")
WIRES = ("fp32", "fp16", "bf16", "int8")
USUAL_MB = 97.7  # the gradients of ResNet-50
ORDERS = ("ring", "interleaved")
_SLOWEST_RATE = 50  # an allreduce this much slower than the links allow is stuck
_START_S = 120.0
_LARGEST_MODEL_MB = 300.0


@dataclass(frozen=True)
class AllreduceRequest:
    megabytes: float | None  # None: the size of the gradients of the model
    algorithm: str = "ring"
    wire: str = "fp32"
    order: str = "ring"
    repeats: int = 5
    model: str | None = None  # its gradients are the chunks of `chunkwise`
    group: int = 0  # maximum phones per group of `hierarchical`; 0: one group per switch

    def check(self) -> None:
        """Validates what does not depend on the phones."""
        for value, known in ((self.algorithm, ALGORITHMS), (self.wire, WIRES), (self.order, ORDERS)):
            if value not in known:
                raise UsageError(f"unknown value '{value}'; choose from: {', '.join(known)}")
        if self.wire != "fp32" and self.algorithm not in ROUNDING_ALGORITHMS:
            raise UsageError(f"{self.algorithm} sends fp32 only", remedy=f"--algorithm {ROUNDING_ALGORITHMS[0]}")
        if self.group and self.algorithm != "hierarchical":
            raise UsageError(f"{self.algorithm} has no groups", remedy="--algorithm hierarchical")
        if self.model is not None:
            self._check_model(self.model)

    @staticmethod
    def _check_model(name: str) -> None:
        from phone_agent.api.models import UnknownModelError, model

        try:
            model(name)
        except UnknownModelError as error:
            raise UsageError(str(error), remedy="clusterctl models list") from None


@dataclass(frozen=True)
class AllreduceResult:
    request: AllreduceRequest
    phones: int
    seconds: float  # the best repeat
    all_seconds: tuple[float, ...]
    bytes: int
    limit_s: float  # the minimum that the links allow for the bytes sent
    correct: bool
    sent_bytes: int  # by the head phone
    cpu_seconds: float  # of the busiest phone

    @property
    def line_rate_fraction(self) -> float:
        return self.limit_s / self.seconds


def in_order(phones: Sequence[Phone], order: str) -> tuple[Phone, ...]:
    """The head is the first phone in either order."""
    return interleaved(phones) if order == "interleaved" else tuple(phones)


def bench_allreduce(
    cluster: Cluster, fleet: Fleet, phones: Sequence[Phone], request: AllreduceRequest
) -> AllreduceResult:
    if len(phones) < 2:
        raise UsageError("an allreduce needs two phones or more")
    ranks = in_order(phones, request.order)
    limit_s = allreduce_limit_s(len(phones), round((request.megabytes or _LARGEST_MODEL_MB) * 1e6), cluster.rate)
    timeout = _START_S + request.repeats * (limit_s * _SLOWEST_RATE + 1)
    report = run_mpi_job(cluster, fleet, ranks, _verb(request, ranks), AllreduceReport, timeout)
    return _result(request, len(phones), bytes_per_second(cluster.rate), report)


def _verb(request: AllreduceRequest, ranks: Sequence[Phone]) -> tuple[str, ...]:
    flags = {
        "--mb": request.megabytes,
        "--algorithm": request.algorithm,
        "--wire": request.wire,
        "--switches": ",".join(phone.switch for phone in ranks),
        "--group": request.group or None,
        "--model": request.model,
        "--repeats": request.repeats,
    }
    given = ((flag, str(value)) for flag, value in flags.items() if value is not None)
    return ("allreduce-bench", *(word for pair in given for word in pair))


def _result(request: AllreduceRequest, phones: int, rate: float, report: AllreduceReport) -> AllreduceResult:
    """Lower bound: a phone sends at least 2 (K - 1) / K of the encoded buffer."""
    return AllreduceResult(
        request,
        phones,
        seconds=report.seconds,
        all_seconds=report.all,
        bytes=report.bytes,
        limit_s=2 * (phones - 1) / phones * report.encoded_bytes / rate,
        correct=report.correct,
        sent_bytes=report.sent_bytes,
        cpu_seconds=report.cpu_seconds,
    )
