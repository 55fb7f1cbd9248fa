"""Staging: puts data and files of a run on its phones. Nothing is started."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.data.push import Push
from orchestrator.errors import ClusterctlError
from orchestrator.fleet.result import Outcome, Outcomes
from orchestrator.inventory import fold, hostfile, remember_failed
from orchestrator.inventory.model import Phone
from orchestrator.launch.context import LaunchContext
from orchestrator.launch.initial_state import InitialState
from orchestrator.records.causes import Cause
from orchestrator.text import count_of, one_line
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.contract.sharding import rank_spans

if TYPE_CHECKING:
    from orchestrator.data.store import StoredDataset
    from orchestrator.fleet import PhoneConnection


class StagingError(ClusterctlError):
    """Staging or starting failed on some phones. Nothing is left running."""

    def __init__(self, failures: Sequence[Outcome[int]], what: str = "staging failed on") -> None:
        lines = [f"  {each.phone.name} ({each.phone.where}): {each.error}" for each in failures]
        headline = f"{what} {count_of(failures, 'phone')}; nothing was started:"
        limit = fold(each.phone for each in failures)
        self.phones = tuple(each.phone.name for each in failures)
        self.summary = one_line(lines[-1].strip())
        codes = {each.code for each in failures}
        self.cause = Cause.DISK_FULL if codes == {ErrorCode.DISK_FULL} else Cause.RESTART_FAILED
        super().__init__("\n".join([headline, *lines]), remedy=f"clusterctl status --limit {limit}")


def push_data(
    context: LaunchContext, spec: RunSpec, stored: StoredDataset | None, *, replicate: bool | None
) -> RunSpec:
    """Sends the samples that phones lack. `replicate` None: as the data is already stored on the phones.

    The returned spec says whether every phone has all samples.
    """
    if stored is None:
        return spec
    phones, batches = context.phones_of(spec), [rank.batch for rank in spec.ranks]
    spans = [rank_spans(spec.data, batches, rank) for rank in range(len(batches))]
    what = f"pushing {stored.name} to"

    def on_progress(_sent: int, _size: int, left: Sequence[Phone]) -> None:
        context.on_progress(what, len(phones) - len(left), len(phones))

    done = Push(context.fleet, stored, phones, spans, replicate, on_progress=on_progress).run()
    _raise_failures(context, done.outcomes)
    context.on_progress(what, len(phones), len(phones))
    return replace(spec, data=replace(spec.data, replicated=done.whole))


def stage_run(context: LaunchContext, spec: RunSpec, initial_state: InitialState) -> None:
    """Puts the files of an attempt on its phones. The run must be recorded already."""
    phones = context.phones_of(spec)
    directory = layout.attempt_dir(spec.run_id, spec.attempt)
    document = spec.to_json().encode()  # once: it lists all phones

    def stage(connection: PhoneConnection) -> int:
        initial_state.stage(connection, spec, Path(scratch))
        connection.put(document, directory / layout.RUN_FILE)
        if connection.phone == phones[0]:
            connection.put(hostfile(phones).encode(), directory / layout.HOSTFILE)
        return 1

    with tempfile.TemporaryDirectory(prefix="clusterctl-run-") as scratch:
        outcomes = context.fleet.map(stage, phones, on_done=context.counter("staging on", len(phones)))
    _raise_failures(context, outcomes)


def _raise_failures(context: LaunchContext, outcomes: Outcomes[int]) -> None:
    if outcomes.failures:
        remember_failed(context.state, [outcome.phone for outcome in outcomes.failures])
        raise StagingError(outcomes.failures)
