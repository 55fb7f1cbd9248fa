"""Starting: mpirun on the head phone, detached. From then on the run continues without this computer."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.errors import ClusterctlError
from orchestrator.fleet import agent
from orchestrator.launch.context import LaunchContext
from orchestrator.launch.initial_state import InitialState
from orchestrator.launch.mpirun import launch_spec
from orchestrator.launch.run_spec import common_ssh_port
from orchestrator.launch.stage import stage_run
from orchestrator.records.record import Failure, RunRecord
from phone_agent.contract import layout
from phone_agent.contract.replies import Started
from phone_agent.contract.schema import RunSpec


def launch_run(context: LaunchContext, spec: RunSpec, initial_state: InitialState) -> RunRecord:
    """Records, stages and starts a run whose data is on the phones. A failure is recorded as well."""
    record = context.store.create(spec, context.cluster.source)
    initial_state.save(spec, context.store.directory(spec.run_id))
    try:
        stage_run(context, spec, initial_state)
        start_run(context, spec)
    except (ClusterctlError, KeyboardInterrupt) as error:
        why = error.message if isinstance(error, ClusterctlError) else "interrupted before it was started"
        context.store.save(replace(record, state="failed", failure=Failure(why)))
        raise
    record = replace(record, state="starting")
    context.store.save(record)
    return record


def start_run(context: LaunchContext, spec: RunSpec) -> None:
    """Starts a staged attempt."""
    context.on_progress("starting on", 0, len(spec.ranks))
    phones = context.phones_of(spec)
    launch = launch_spec(spec, context.cluster.subnet, common_ssh_port(phones))
    head = context.fleet.connection(phones[0])
    directory = layout.attempt_dir(spec.run_id, spec.attempt)
    head.put(launch.to_json().encode(), directory / layout.LAUNCH_FILE)
    agent.call(head, Started, "start", spec.run_id, "--attempt", str(spec.attempt))
    context.on_progress("starting on", len(spec.ranks), len(spec.ranks))
