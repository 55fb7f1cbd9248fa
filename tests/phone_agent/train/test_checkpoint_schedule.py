"""After which steps a checkpoint is written."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.train.checkpoint_schedule import CheckpointSchedule, newest_checkpoint_age_s
from tests.phone_agent.phones import run_spec


def due(schedule: CheckpointSchedule, steps: int = 10) -> list[int]:
    return [step for step in range(1, steps + 1) if schedule.is_due(step)]


def test_every_few_steps_and_at_the_end() -> None:
    spec = run_spec((4,), steps=10, checkpoint_every=4)
    assert due(CheckpointSchedule(spec)) == [4, 8, 10]
    assert due(CheckpointSchedule(run_spec((4,), steps=10))) == [10]
    assert json.loads(spec.to_json())["recovery"]["checkpoint_every"] == 4


def test_by_time() -> None:
    times = iter([0.0, 119.0, 120.0, 121.0, 239.0])
    schedule = CheckpointSchedule(run_spec((4,), steps=10, checkpoint_minutes=2.0), clock=lambda: next(times))
    assert [schedule.interval_passed for _ in range(2)] == [False, True]
    schedule.add(3)
    assert not schedule.interval_passed, "the next one is due two minutes later"
    assert due(schedule) == [3, 10]


def test_never_by_time_if_there_is_no_interval() -> None:
    times = iter([0.0, 1e9])
    schedule = CheckpointSchedule(run_spec((4,), steps=10, checkpoint_minutes=0.0), clock=lambda: next(times))
    assert not schedule.interval_passed


def test_a_restart_does_not_postpone_it(tmp_path: Path) -> None:
    assert newest_checkpoint_age_s(tmp_path) == 0.0
    for name, seconds in ((layout.RUN_FILE, 5000), (layout.checkpoint_file(3), 700)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - seconds,) * 2)
    age_s = newest_checkpoint_age_s(tmp_path)
    assert 600 < age_s < 800
    assert CheckpointSchedule(run_spec((4,), steps=10, checkpoint_minutes=10.0), age_s).interval_passed
