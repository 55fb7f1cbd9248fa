"""Our double-precision GEMM, and LINPACK on one process, against OpenBLAS and LAPACK (through numpy).

    python -m benchmarks.linpack [--threads 2] [--rounds 5] [--n 1000 2000 4000] [--json]

The products have the shapes of LINPACK. We compute C -= A^T B; OpenBLAS computes A^T B and does not read C. Both sides
take turns in one process, with a pause in between, because OpenBLAS threads spin for a while before they sleep. The
best turn counts. The ratio is the OpenBLAS time over ours: above 1, ours is faster.

Exits with 1 if the geometric mean of the ratios of the products is below 0.9, or if a residual is too large.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_RATIO = 0.9
REST_S = 0.1
BLOCK = 128
# Trailing-matrix updates with several block sizes, updates within a panel, and square products.
PRODUCTS = [
    (4000, 4000, BLOCK), (2000, 2000, BLOCK), (1000, 1000, BLOCK), (3000, 3000, 192), (2000, 2000, 256),
    (64, 4000, 64), (64, 2000, 64), (1000, 1000, 1000), (2000, 2000, 2000),
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    what: str
    flops: float
    ours_s: float
    theirs_s: float
    residual: float | None = None

    @property
    def ratio(self) -> float:
        return self.theirs_s / self.ours_s


def turns(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """The best time of each side. Both functions return their time in seconds; the first round is warm-up."""
    seconds = []
    for _ in range(rounds + 1):
        one = ours()
        time.sleep(REST_S)
        two = theirs()
        time.sleep(REST_S)
        seconds.append((one, two))
    return min(one for one, _ in seconds[1:]), min(two for _, two in seconds[1:])


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def product(rows: int, columns: int, depth: int, threads: int, rounds: int) -> Row:
    import numpy as np

    from phone_agent.linpack.kernels import Kernels

    draw = np.random.default_rng(rows)
    a, b = draw.standard_normal((depth, rows)), draw.standard_normal((depth, columns))
    c, into = np.zeros((rows, columns)), np.empty((rows, columns))
    kernels = Kernels(threads, rows, columns, depth)

    def repeated(work: Callable[[], Any]) -> Callable[[], float]:
        return lambda: min(timed(work) for _ in range(3))

    ours, theirs = turns(
        rounds, repeated(lambda: kernels.subtract(c, a, b)), repeated(lambda: np.matmul(a.T, b, out=into))
    )
    kernels.close()
    return Row(f"{rows} x {columns} x {depth}", 2.0 * rows * columns * depth, ours, theirs)


def system(n: int, threads: int, rounds: int) -> Row:
    import numpy as np

    from phone_agent.linpack import bench
    from phone_agent.linpack.matrix import Grid, System
    from phone_agent.linpack.process_grid import ProcessGrid
    from phone_agent.linpack.solution import residual

    process_grid, equations = ProcessGrid(Grid(1, 1)), System(n, BLOCK, Grid(1, 1))
    whole = equations.local_matrix(0, 0)
    matrix, right = whole[:, :-1].copy(), whole[:, -1].copy()
    answers: list[NDArray[np.float64]] = []

    def ours() -> float:
        seconds, answer, _ = bench.solve(equations, process_grid, threads)
        answers.append(answer)
        return seconds

    seconds = turns(rounds, ours, lambda: timed(lambda: np.linalg.solve(matrix, right)))
    return Row(f"n {n}", equations.flops, *seconds, residual(equations, process_grid, answers[-1]))


def main() -> None:
    options = _options()
    os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)  # before numpy is imported
    from phone_agent.bench.kernels import peak_gflops
    from phone_agent.core.thread_pool import ThreadPool
    from phone_agent.linpack.solution import MAX_RESIDUAL

    pool = ThreadPool(options.threads)
    peak = peak_gflops(pool, in_double=True)
    pool.close()
    products = [product(*shape, options.threads, options.rounds) for shape in PRODUCTS]
    systems = [system(n, options.threads, options.rounds) for n in options.n]
    mean = exp(sum(log(row.ratio) for row in products) / len(products))
    if options.json:
        rows = [{**asdict(row), "ratio": row.ratio} for row in (*products, *systems)]
        print(json.dumps({"peak_gflops": peak, "mean_ratio": mean, "rows": rows}, indent=2))
    else:
        report(products, "OpenBLAS", peak, options.threads)
        report(systems, "LAPACK", peak, options.threads)
        print(f"products: geometric mean {mean:.2f}x")
    sys.exit(mean < MIN_RATIO or any(not (row.residual or 0.0) < MAX_RESIDUAL for row in systems))


def report(rows: list[Row], rival: str, peak: float, threads: int) -> None:
    title = f"double precision, {threads} threads, peak {peak:.0f} Gflop/s"
    table = Table("", "ours ms", "Gflop/s", "%", f"{rival} ms", "Gflop/s", "%", "ratio", "residual", title=title)
    for row in rows:
        speeds = (
            cell
            for seconds in (row.ours_s, row.theirs_s)
            for speed in (row.flops / seconds / 1e9,)
            for cell in (f"{seconds * 1e3:.2f}", f"{speed:.1f}", f"{speed / peak:.0%}")
        )
        table.add_row(row.what, *speeds, f"{row.ratio:.2f}", "" if row.residual is None else f"{row.residual:.4f}")
    Console(width=120).print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, nargs="*", default=[1000, 2000, 4000])
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
