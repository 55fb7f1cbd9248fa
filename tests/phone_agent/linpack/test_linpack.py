"""LINPACK: layout, row swaps, memory estimate, and solutions of real ranks on several grids."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent.contract.errors import BadRequestError
from phone_agent.linpack import bench, matrix
from phone_agent.linpack.matrix import BlockCyclic, Grid, System
from phone_agent.linpack.panel import Panel, SingularError
from phone_agent.linpack.row_swaps import row_exchange
from phone_agent.linpack.solution import back_substitute
from tests.phone_agent.phones import AGENT, Phone, make_phones, mpirun

GRIDS = ["1x1", "1x2", "2x2", "2x3", "3x1"]
SIZES = ["1/8", "5/3", "64/16", "101/16", "150/64", "40/100"]  # n / nb


def on_grid(directory: Path, grid: str, sizes: Sequence[str]) -> list[dict[str, Any]]:
    rows, columns = map(int, grid.split("x"))
    phones = make_phones(directory, rows * columns)
    done = mpirun(phones, sys.executable, "-m", "tests.phone_agent.linpack_ranks", grid, *sizes)
    assert done.returncode == 0, done.stderr
    reports: list[dict[str, Any]] = json.loads(done.stdout)
    return reports


def check_reports(reports: Sequence[dict[str, Any]], sizes: Sequence[str]) -> None:
    assert [f"{report['n']}/{report['nb']}" for report in reports] == list(sizes)
    for report in reports:
        assert 0 <= report["residual"] < 16, report
        assert report["error"] < 1e-8, report


@pytest.mark.parametrize("grid", GRIDS)
def test_solution_on_every_grid(tmp_path: Path, grid: str) -> None:
    check_reports(on_grid(tmp_path, grid, SIZES), SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("grid", [*GRIDS, "4x1", "1x5", "3x2"])
def test_solution_at_many_sizes(tmp_path: Path, grid: str) -> None:
    sizes = [f"{n}/{block}" for n in (2, 31, 200, 333, 1000) for block in (1, 7, 32, 128) if n < 1000 or block > 7]
    check_reports(on_grid(tmp_path, grid, sizes), sizes)


class SingleProcessComm:
    """One process, without MPI."""

    size, rank = 1, 0

    def broadcast(self, *_: Any) -> SingleProcessComm:
        return self

    def allreduce_sum(self, *_: Any) -> None:
        """The sum over one process is its own buffer."""

    def gather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return row[None].copy()

    def wait(self) -> None:
        """Every request is already complete."""

    def done(self) -> bool:
        return True


SINGLE_PROCESS: Any = SimpleNamespace(
    grid=Grid(1, 1),
    row=0,
    column=0,
    row_comm=SingleProcessComm(),
    column_comm=SingleProcessComm(),
    world=SingleProcessComm(),
)


def test_a_wrong_solution_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "back_substitute", lambda *args: back_substitute(*args) * (1 + 1e-9))
    report = bench.run(bench.LinpackSize(120, 32, threads=1), SINGLE_PROCESS)
    assert report["passed"] is False
    assert report["residual"] > report["limit"] == 16


def test_a_singular_matrix_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(System, "local_matrix", lambda self, *_: np.zeros((self.n, self.n + 1)))
    with pytest.raises(SingularError, match="column 0 has no pivot"):
        bench.run(bench.LinpackSize(20, 8, threads=1), SINGLE_PROCESS)


def test_the_command_rejects_invalid_sizes(phone: Phone) -> None:
    sizes = ("--nb", "64", "--threads", "1")
    refused = phone.agent("linpack", "--n", "100", "--grid", "2x2", *sizes)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "a 2x2 grid needs 4 phones, but there are 1; possible grids: 1x1" in refused.stderr
    refused = phone.agent("linpack", "--n", "9000000", "--grid", "1x1", *sizes)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the largest n that fits is" in refused.stderr


def test_the_command_prints_a_report(tmp_path: Path) -> None:
    done = mpirun(make_phones(tmp_path, 2), *AGENT, "linpack", "--n", "90", "--nb", "32", "--grid", "2x1")
    report = json.loads(done.stdout)
    assert (report["passed"], report["grid"], len(report["phones"])) == (True, [2, 1], 2)
    assert report["gflops"] == pytest.approx(System(90, 32, Grid(2, 1)).flops / report["seconds"] / 1e9)
    for phone in report["phones"]:
        assert phone["peak_gflops"] > 0
        assert 0 < sum(phone["seconds"].values()) <= 1.01 * report["seconds"]


@pytest.mark.parametrize(("size", "block", "parts"), [(1, 1, 1), (10, 3, 2), (64, 16, 4), (65, 16, 4), (7, 16, 3)])
def test_every_row_has_one_owner_and_one_local_index(size: int, block: int, parts: int) -> None:
    layout = BlockCyclic(size, block, parts)
    global_indices = [layout.global_indices(part).tolist() for part in range(parts)]
    assert sorted(row for part in global_indices for row in part) == list(range(size))
    for row in range(size):
        part = layout.owner(row)
        assert global_indices[part][layout.local(row)] == row
        assert [layout.count(each, before=row) for each in range(parts)] == [
            sum(other < row for other in global_indices[each]) for each in range(parts)
        ]


def test_grid_defaults_and_errors() -> None:
    assert [str(Grid.nearly_square(size)) for size in (1, 2, 4, 6, 7, 46, 138)] == [
        "1x1", "1x2", "2x2", "2x3", "1x7", "2x23", "6x23",
    ]  # fmt: skip
    for text in ("2", "2x", "0x4", "x", "2x2x1", "-1x4", "2 x2"):
        with pytest.raises(BadRequestError, match="is not a grid"):
            Grid.parse(text, 4)
    with pytest.raises(BadRequestError, match="there are 6; possible grids: 1x6, 2x3, 3x2, 6x1"):
        Grid.parse("2x2", 6)


@pytest.mark.parametrize("seed", range(20))
def test_combined_swaps_equal_swaps_one_by_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    start, width, size = 4, 6, 14
    panel = Panel(Panel.allocate(width, 1), start, width, 1)
    panel.pivots[:] = [draw.integers(start + j, size) for j in range(width)]
    rows = list(range(size))
    for row, pivot in enumerate(panel.pivot_rows(), start=start):
        rows[row], rows[pivot] = rows[pivot], rows[row]
    exchange = row_exchange(panel)
    combined = list(range(size))
    combined[start : start + width] = exchange.pivots
    for target, row in exchange.displaced:
        assert start <= row < start + width  # the owner of the diagonal block has all displaced rows
        combined[target] = row
    assert combined == rows


def test_the_matrix_does_not_depend_on_the_grid() -> None:
    whole = System(50, 7, Grid(1, 1)).local_matrix(0, 0)
    assert np.abs(whole).max() <= 0.5
    system = System(50, 7, Grid(2, 3))
    for row in range(2):
        for column in range(3):
            mine = np.ix_(system.rows.global_indices(row), system.columns.global_indices(column))
            np.testing.assert_array_equal(system.local_matrix(row, column), whole[mine])
    assert not np.array_equal(System(50, 7, Grid(1, 1), seed=2).local_matrix(0, 0), whole)


@pytest.mark.parametrize("grid", [Grid(1, 1), Grid(2, 3)])
def test_largest_n_fits(grid: Grid) -> None:
    budget = 500_000_000
    n = matrix.largest_n(budget, 128, grid)
    assert matrix.required_bytes(n, 128, grid) <= budget < matrix.required_bytes(n + 1, 128, grid)
    matrix.check_fits(n, 128, grid, budget, "p1-01")
    with pytest.raises(matrix.TooLargeError, match=rf"p1-01 has 500\.0 MB free; the largest n that fits is {n}$"):
        matrix.check_fits(n + 1, 128, grid, budget, "p1-01")
    assert matrix.largest_n(1000, 128, grid) == 0
    assert matrix.default_n(128, grid, None) == round(2048 * grid.size**0.5)
    assert matrix.default_n(128, grid, 130_000_000) < matrix.default_n(128, grid, None)
