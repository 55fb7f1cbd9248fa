"""Defaults of `clusterctl launch`: the only table of them. `--help` prints it, `resolve` applies it.

Options that travel to the phones take their defaults from the groups of the run spec (phone_agent.contract.schema).
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from orchestrator.launch.request import LaunchRequest, option_paths
from phone_agent.contract.schema import CommunicationSpec, ComputeSpec, OptimizerSpec, RecoverySpec, ScheduleSpec

_LAUNCH: Final[dict[str, Any]] = {
    "model": "lenet",
    "freeze": (),
    "steps": 200,
    "batch": 32,
    "seed": 0,
    "eval_every": 0,
    "data.source": "auto",
    "data.augment": "none",
    "data.on_corrupt": "fail",
    "recovery.checkpoint_every": timedelta(minutes=RecoverySpec().checkpoint_minutes),
}
_GROUPS: Final[dict[str, Any]] = {
    "optimizer": OptimizerSpec(),
    "schedule": ScheduleSpec(),
    "communication": CommunicationSpec(),
    "compute": ComputeSpec(),
    "recovery": RecoverySpec(),
}
_SPEC: Final = {f"{group}.{name}": value for group, spec in _GROUPS.items() for name, value in asdict(spec).items()}
_OPTIONS: Final = frozenset(option_paths(LaunchRequest)) - {"recovery.spares"}  # a selector there, names in the spec

DEFAULTS: Final = {path: value for path, value in (_SPEC | _LAUNCH).items() if path in _OPTIONS}
# Defaults as `--help` describes them, where the value says little; empty: not shown.
DESCRIPTIONS: Final = {
    "new_head": "reinitialize it only if the classes differ",
    "eval_every": "only at the end",
    "schedule.warmup_steps": "no warm-up",
    "schedule.decay_steps": "",
    "data.replicated": "keep the current layout; for a new dataset, replicate if it needs at most a quarter of "
    "every phone's free space",
    "communication.group_size": "all phones on a switch; with --algorithm auto, chosen by a link probe",
    "communication.bucket_bytes": "chosen by a link probe",
    "compute.threads": "one per big core",
    "compute.memory_bytes": "enough to train without recomputing activations",
    "compute.micro_batch": "the whole batch, or as much as fits in memory",
    "recovery.checkpoint_every": f"{RecoverySpec().checkpoint_minutes:g}min",
    "recovery.min_phones": "a majority of the phones that started",
}
