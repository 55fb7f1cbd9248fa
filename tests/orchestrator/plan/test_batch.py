from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.plan.batch import split_global_batch


@given(st.integers(1, 200), st.integers(0, 5000))
def test_global_batch_is_split_completely_and_evenly(count: int, extra: int) -> None:
    batches = split_global_batch(count + extra, count)
    assert sum(batches) == count + extra
    assert max(batches) - min(batches) <= 1


def test_global_batch_smaller_than_the_number_of_phones_fails() -> None:
    with pytest.raises(UsageError, match="8 phones"):
        split_global_batch(7, 8)


def test_global_batch_with_single_images_fails_if_batch_normalization_needs_two() -> None:
    with pytest.raises(UsageError, match="less than 2 images per phone") as error:
        split_global_batch(15, 8, smallest=2)
    assert error.value.remedy == "--global-batch 16 or more, or fewer phones with --limit"
    assert split_global_batch(16, 8, smallest=2) == (2,) * 8
