"""The second paper's tables 4 and 5, counted again: what differs is a misprint, and known as one."""

from __future__ import annotations

import pytest

from orchestrator.device_study.published import MISPRINTS, TABLE_4, TABLE_5
from orchestrator.device_study.recount import Cell, cells, format_like, matches
from phone_agent.contract.device_study import DEPTHS, WIDTHS
from phone_agent.device_study import networks
from phone_agent.nn.summary import training_flops

CELLS = list(cells())


def test_every_cell_of_both_tables_is_counted() -> None:
    assert len(CELLS) == 2 * (len(TABLE_4) + len(TABLE_5)) == 64
    assert {(cell.width, cell.depth) for cell in CELLS} == {(w, d) for w in WIDTHS for d in DEPTHS}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.table}-{cell.width}x{cell.depth}-{cell.column}")
def test_a_cell_agrees_or_is_a_known_misprint(cell: Cell) -> None:
    if cell.misprint is None:
        assert cell.agrees, format_like(cell.printed, cell.exact)
    else:
        assert not cell.agrees
        assert cell.misprint.printed == cell.printed
        assert matches(cell.misprint.should_be, cell.exact)


def test_each_misprint_is_in_a_table() -> None:
    assert sum(cell.misprint is not None for cell in CELLS) == len(MISPRINTS) == 5


def test_the_text_confirms_the_worst_misprint() -> None:
    """It says that eight convolutions of 512 have 4.85 times the parameters of eight dense layers."""
    convolutions, dense = (networks.build(family, 512, 8).parameter_count for family in ("conv", "fc"))
    assert convolutions / dense == pytest.approx(4.85, abs=0.01)


@pytest.mark.parametrize(
    ("printed", "exact", "agrees"),
    [
        ("1.7K", 1792, True),
        ("1.8K", 1792, True),
        ("1.9K", 1792, False),
        ("852.48K", 852_480, True),
        ("12M", 12e6, True),
    ],
)
def test_printed_numbers_may_be_rounded_or_truncated(printed: str, exact: float, agrees: bool) -> None:  # noqa: FBT001
    assert matches(printed, exact) is agrees


def test_a_step_does_less_than_three_passes_of_every_layer() -> None:
    """Nobody needs the gradient of the images; on a network of one layer that is a third."""
    one = networks.build("fc", 64, 1)
    assert training_flops(one) * 3 == 2 * (networks.three_pass_flops(one, 1) - 2 * 64)


def test_a_separable_layer_is_two_convolutions() -> None:
    graph = networks.build("separable", 64, 2)
    assert graph.parameter_count == (9 * 3 + 3) + (3 * 64 + 64) + (9 * 64 + 64) + (64 * 64 + 64)
    assert graph.classes == 64
