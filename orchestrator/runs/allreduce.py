"""Time an allreduce between the phones and compare it with what their links allow."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.inventory import hostfile
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.plan.mpirun import agent_argv, environment, mpirun_argv
from orchestrator.plan.rate import allreduce_limit_s
from orchestrator.plan.ring import interleaved
from orchestrator.plan.run import ALGORITHMS, common_ssh_port
from orchestrator.view.text import one_line
from phone_agent import layout

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

ORDERS = ("ring", "interleaved")
WIRES = ("fp32",)
_SLOWEST_RATE = 50  # an allreduce this much slower than the links allow is stuck
_START_S = 120.0


@dataclass(frozen=True)
class AllreduceRequest:
    megabytes: float
    algorithm: str = "ring"
    wire: str = "fp32"
    order: str = "ring"
    repeats: int = 5

    def check(self) -> None:
        for value, known in ((self.algorithm, ALGORITHMS), (self.wire, WIRES), (self.order, ORDERS)):
            if value not in known:
                raise UsageError(f"there is no '{value}'; there is: {', '.join(known)}")


@dataclass(frozen=True)
class AllreduceResult:
    request: AllreduceRequest
    phones: int
    seconds: float  # the best repeat
    all_seconds: tuple[float, ...]
    bytes: int
    limit_s: float
    correct: bool

    @property
    def line_rate_fraction(self) -> float:
        return self.limit_s / self.seconds


def in_order(phones: Sequence[Phone], order: str) -> tuple[Phone, ...]:
    """The head is the first phone in either order."""
    return interleaved(phones) if order == "interleaved" else tuple(phones)


def bench_allreduce(
    cluster: Cluster, phones: Sequence[Phone], head: PhoneConnection, request: AllreduceRequest
) -> AllreduceResult:
    if len(phones) < 2:
        raise UsageError("an allreduce needs two phones or more")
    directory = layout.run_dir(f"allreduce-{secrets.token_hex(4)}")
    hosts = directory / layout.HOSTFILE
    limit_s = allreduce_limit_s(len(phones), round(request.megabytes * 1e6), cluster.rate)
    argv = mpirun_argv(len(phones), str(hosts), cluster.subnet, common_ssh_port(phones), _verb(request))
    head.put(hostfile(in_order(phones, request.order)).encode(), hosts)
    try:
        timeout = _START_S + request.repeats * (limit_s * _SLOWEST_RATE + 1)
        # Ends on the phone as well: nobody there notices that this computer has given up, and the ranks would poll on.
        bounded = ("timeout", "-k", "10", f"{timeout:.0f}", *argv)
        result = head.run(bounded, env=environment(), timeout=timeout + 15)
    finally:
        head.run(["rm", "-rf", "--", str(directory)])
    return _read(request, len(phones), limit_s, _report(result.stdout, result.stderr))


def _verb(request: AllreduceRequest) -> tuple[str, ...]:
    flags = {"--mb": request.megabytes, "--algorithm": request.algorithm, "--repeats": request.repeats}
    return agent_argv("allreduce-bench", *(str(word) for pair in flags.items() for word in pair))


def _report(stdout: str, stderr: str) -> dict[str, Any]:
    """Rank 0's line; whatever else was printed is in the way."""
    for line in reversed(stdout.splitlines()):
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and "seconds" in report:
            return report
    said = [line for line in (stderr or stdout).splitlines() if line.strip("- ")]
    raise ClusterctlError(
        "\n".join(["the allreduce did not finish:", *(f"  {one_line(line, 160)}" for line in said[-8:])]),
        remedy="clusterctl status",
    )


def _read(request: AllreduceRequest, phones: int, limit_s: float, report: dict[str, Any]) -> AllreduceResult:
    try:
        seconds, every = float(report["seconds"]), tuple(map(float, report["all"]))
        return AllreduceResult(
            request, phones, seconds, every, int(report["bytes"]), limit_s, correct=report["correct"] is True
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterctlError(f"the head phone's report makes no sense: {error!r}") from None
