"""Our engine as a contestant of `compute` and `layers` (see peers.py)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.networks import Sample, network, peak_rss_mb, sample
from benchmarks.peers import CLOCKS, serve
from phone_agent.backends import get_backend
from phone_agent.bench.cases import convolution
from phone_agent.bench.compute import breakdown
from phone_agent.bench.kernels import best_seconds, peak_gflops
from phone_agent.contract.schema import OptimizerSpec
from phone_agent.core import ops
from phone_agent.core.thread_pool import ThreadPool
from phone_agent.nn.executable import Executable
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.train.optimizers import Optimizer, build_optimizer

RULES = OptimizerSpec(learning_rate=0.01, momentum=0.9, weight_decay=1e-4, decay_all=True)


class Contestant:
    def __init__(self) -> None:
        self._executable: Executable | None = None
        self._optimizer: Optimizer | None = None
        self._sample: Sample | None = None
        self._threads = 1
        self._isa: str | None = None

    def open(
        self,
        model: str,
        batch: int,
        threads: int,
        isa: str | None = None,
        *,
        engine: str = "cpu",
        winograd: bool = True,
        memory_bytes: int | None = None,
        half: bool = False,
    ) -> dict[str, Any]:
        self._executable = self._optimizer = None
        graph = network(model)
        options = Options(threads=threads, isa=isa, winograd=winograd, memory_bytes=memory_bytes, half=half)
        state = State(graph, seed=1)
        self._executable = get_backend(engine).compile(graph, state, batch, options)
        self._optimizer = build_optimizer(RULES, state, backend=engine, threads=threads, isa=isa)
        self._sample = sample(graph, batch)
        return {}

    def steps(self, count: int, clock: str = "wall") -> dict[str, Any]:
        now = CLOCKS[clock]
        assert self._executable is not None
        assert self._optimizer is not None
        assert self._sample is not None
        seconds, loss = [], 0.0
        for index in range(count):
            start = now()
            loss = self._executable.loss_and_gradients(self._sample.images, self._sample.labels, 1.0, draw=index)
            self._optimizer.update(slice(None), RULES.learning_rate, index + 1)
            seconds.append(now() - start)
        return {"seconds": seconds, "loss": loss, "peak_rss_mb": peak_rss_mb()}

    def profile(self) -> dict[str, Any]:
        """Share of the step time by kind of operation."""
        assert self._executable is not None
        assert self._sample is not None
        shares = breakdown(self._executable, self._sample.images, self._sample.labels)
        return {"shares": [asdict(share) for share in shares]}

    def open_layers(self, threads: int, isa: str | None = None) -> dict[str, Any]:
        self._threads, self._isa = threads, isa
        return {}

    def peak(self) -> dict[str, Any]:
        pool = ThreadPool(self._threads, self._isa)
        try:
            return {"gflops": peak_gflops(pool, 0.5), "isa": pool.isa}
        finally:
            pool.close()

    def layer(
        self, geometry: dict[str, int], direction: str, seconds: float, algorithm: str, clock: str = "wall"
    ) -> dict[str, Any]:
        g = ops.Geometry(**geometry)
        family = "DEPTHWISE" if 1 < g.groups == g.in_c == g.out_c else "CONV"
        kind = ops.Kind[f"{family}_{direction.upper()}"]
        case = convolution(kind, g, _algorithm(algorithm), self._threads)
        return {"best": best_seconds(case, self._threads, self._isa, seconds, CLOCKS[clock])}


def _algorithm(name: str) -> ops.Algorithm:
    return ops.Algorithm.DIRECT if name == "plan" else ops.Algorithm[name.upper()]


if __name__ == "__main__":
    contestant = Contestant()
    serve(
        {
            "open": contestant.open,
            "steps": contestant.steps,
            "profile": contestant.profile,
            "open_layers": contestant.open_layers,
            "peak": contestant.peak,
            "layer": contestant.layer,
        }
    )
