"""Starting: mpirun on the head phone, detached. From then on the run continues without this computer."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.errors import ClusterctlError
from orchestrator.fleet import agent
from orchestrator.launch.context import LaunchContext
from orchestrator.launch.daemons import RECORD_SCRIPT, Job, start_daemons
from orchestrator.launch.initial_state import InitialState
from orchestrator.launch.mpirun import launch_spec, parameters, rank_verb
from orchestrator.launch.stage import stage_run
from orchestrator.records.record import Failure, RunRecord
from phone_agent.contract import layout
from phone_agent.contract.replies import RunProbe, Started
from phone_agent.contract.schema import RunSpec


def launch_run(context: LaunchContext, spec: RunSpec, initial_state: InitialState) -> RunRecord:
    """Records, stages and starts a run whose data is on the phones. A failure is recorded as well."""
    _check_unclaimed(context, spec)
    record = context.store.create(spec, context.cluster.source)
    initial_state.save(spec, context.store.directory(spec.run_id))
    try:
        stage_run(context, spec, initial_state)
        start_run(context, spec)
    except BaseException as error:
        context.store.save(replace(record, state="failed", failure=Failure(_describe(error))))
        raise
    record = replace(record, state="starting")
    context.store.save(record)
    return record


def _describe(error: BaseException) -> str:
    if isinstance(error, ClusterctlError):
        return error.message
    return "interrupted before it was started" if isinstance(error, KeyboardInterrupt) else str(error)


def _check_unclaimed(context: LaunchContext, spec: RunSpec) -> None:
    """While the data was pushed, another run may have been restarted on one of the phones."""
    claims = context.store.claims()
    taken = next((rank.phone for rank in spec.ranks if rank.phone in claims), None)
    if taken is not None:
        raise ClusterctlError(f"{taken} takes part in {claims[taken].run_id} by now", remedy="clusterctl runs")


def start_run(context: LaunchContext, spec: RunSpec) -> None:
    """Starts a staged attempt."""
    context.on_progress("starting on", 0, len(spec.ranks))
    phones = context.phones_of(spec)
    launch = launch_spec(spec, context.cluster.subnet)
    head = context.fleet.connection(phones[0])
    directory = layout.attempt_dir(spec.run_id, spec.attempt)
    head.put(launch.to_json().encode(), directory / layout.LAUNCH_FILE)
    head.put(RECORD_SCRIPT, directory / layout.DAEMONS / layout.RECORD_DAEMON)
    try:
        agent.call(head, Started, "start", spec.run_id, "--attempt", str(spec.attempt))
        mpi_parameters = parameters(context.cluster.subnet, spec.run_id)
        start_daemons(context.fleet, Job(spec.run_id, spec.attempt, tuple(phones), rank_verb(spec), mpi_parameters))
    except BaseException:  # mpirun would wait for its daemons for ever, also if only its reply was lost
        context.fleet.map(lambda connection: agent.call(connection, RunProbe, "cleanup", spec.run_id), phones)
        raise
    context.on_progress("starting on", len(spec.ranks), len(spec.ranks))
