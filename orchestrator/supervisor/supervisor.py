"""Supervises a run until it ends: follows its attempts, diagnoses failures, and starts the next attempt.

This is the driver: it turns what happens into events for `transition.py` and executes the actions that come back. All
decisions are made there. It writes files in the directory of the run, which is all that `launch` and `attach` show. The
run itself needs no supervisor: if this process dies, the next one continues from what is recorded on this computer and
held in memory on the phones.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.data.push import CorruptShardError
from orchestrator.errors import ClusterctlError, PhoneError, UsageError
from orchestrator.fleet import agent
from orchestrator.launch.context import launch_in_progress
from orchestrator.launch.dataset import find_stored
from orchestrator.launch.initial_state import InitialState
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.launch.stage import StagingError, push_data, stage_run
from orchestrator.launch.start import start_run
from orchestrator.records import checkpoints
from orchestrator.records.activity import ActivityFile
from orchestrator.records.causes import Cause
from orchestrator.records.events import FOLLOWER_EVENTS, Event, Progress, StepEvent
from orchestrator.records.incidents import IncidentKind
from orchestrator.supervisor import recovery_timing, states
from orchestrator.supervisor.checkpoint_puller import CheckpointPuller
from orchestrator.supervisor.diagnosis import Diagnosis, diagnose_failure, name_ranks
from orchestrator.supervisor.event_recorder import EventRecorder
from orchestrator.supervisor.final_checkpoint import collect_with_retries
from orchestrator.supervisor.follow import FollowRefusedError, follow
from orchestrator.supervisor.probe import LeaseHeldError, Probe, probe_phones, probe_ranks, terminate
from orchestrator.supervisor.recovery_timing import RecoveryTiming
from orchestrator.supervisor.rejoin import RejoinMonitor
from orchestrator.supervisor.restart_policy import lost_phones, unable_phones, without_implausible_state
from orchestrator.supervisor.run_context import connection_to
from orchestrator.supervisor.states import Finished, Following, RunContext
from orchestrator.supervisor.step_timeout import StepTimeout
from orchestrator.supervisor.stop_checkpoint import StopCheckpoint
from orchestrator.supervisor.transition import transition
from orchestrator.text import count_of, one_line
from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, InternalError
from phone_agent.contract.replies import EndRequested
from phone_agent.contract.schema import RunSpec

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection
    from orchestrator.inventory.model import Phone
    from orchestrator.launch.context import LaunchContext
    from orchestrator.records.record import RunRecord

log = logging.getLogger(__name__)

SAVE_EVERY_S = 5.0
REJOIN_MIN_ETA_S = 20.0  # with less training left, a restart for returning phones does not pay
_LOG_TAIL_BYTES = 65536
_LAST_EVENTS = frozenset({"done", "yield"})  # of an attempt: no step is due any more, and ranks may end one by one


class _AttemptAbandoned(Exception):  # noqa: N818  (control flow, not an error)
    """Raised inside the event stream to leave it."""


class _StopRequested(Exception):  # noqa: N818  (control flow, not an error)
    """Raised wherever the supervisor could otherwise go on with the run."""


class _HeadFailedError(ClusterctlError):
    """The head phone did not start mpirun."""

    def __init__(self, error: PhoneError, spec: RunSpec) -> None:
        head = spec.ranks[0]
        super().__init__(f"{name_ranks([head])}: {error.message}", remedy=error.remedy)
        self.phones = (head.phone,)


class Supervisor:
    """`record` says how the run ended. It is not over if a stop was requested: `stop.py` does that."""

    def __init__(self, launch: LaunchContext, record: RunRecord, activity: ActivityFile) -> None:
        self._launch, self._store, self._fleet = launch, launch.store, launch.fleet
        self._activity = activity
        spec = self._store.spec(record.run_id, record.attempt)
        self._state: states.State = Following(RunContext(record, spec))
        self._pending: deque[states.Action] = deque()
        self._puller = CheckpointPuller(
            lambda event: checkpoints.fetch_announced(self._store, record.run_id, event, self._head)
        )
        self._recorder = EventRecorder(self._store, record, self._puller)
        self._timing = RecoveryTiming()
        self._step_timeout = StepTimeout(len(spec.ranks))
        self._last_event_at = self._saved_at = time.monotonic()

    @property
    def record(self) -> RunRecord:
        return self._context.record

    @property
    def spec(self) -> RunSpec:
        """Of the newest attempt."""
        return self._context.spec

    @property
    def progress(self) -> Progress:
        return self._recorder.progress

    def run(self) -> None:
        """Return when the run has ended or is given up, or when a stop is requested."""
        self._activity.clear()
        with self._recorder:
            try:
                self._recorder.replay(self.record.attempt)
                while not isinstance(self._state, Finished):
                    self._follow_attempt()
                    self._execute_pending()
                    if isinstance(self._state, states.Recovering):
                        raise InternalError("a recovery has no action left")
                self._collect_checkpoint()
            except _StopRequested:
                log.info("%s: a stop was requested", self.record.run_id)
            finally:
                self._save()
                self._activity.clear()

    def _collect_checkpoint(self) -> None:
        """Before the record says that the run is over: whoever waits for that finds the checkpoint."""
        if (announced := self.progress.checkpoint) is None:
            return
        self._activity.report(f"fetching {announced.name}: {announced.size / 1e6:,.0f} MB")
        self._puller.close()
        if reason := collect_with_retries(self._launch, self.record, self.progress):
            message = f"could not fetch the last checkpoint: {reason}; try: clusterctl attach {self.record.run_id}"
            self._add_incident(IncidentKind.CHECKPOINT_MISSING, message)

    # ------------------------------------------------------------------------------------------ events and actions

    def _dispatch(self, event: states.SupervisorEvent) -> None:
        self._state, actions = transition(self._state, event, time.monotonic())
        self._pending.extend(actions)

    def _execute_pending(self) -> None:
        while self._pending:
            self._check_stop()
            self._execute_next()

    def _dispatch_in_stream(self, event: states.SupervisorEvent) -> None:
        """Actions of a recovery wait until the event stream of the failed attempt is closed."""
        self._dispatch(event)
        while self._pending and not self._abandoned:
            self._execute_next()

    def _execute_next(self) -> None:
        """A failure is an event as well: what follows from it is decided in `transition.py`."""
        action = self._pending.popleft()
        try:
            answer = self._execute(action)
        except LeaseHeldError:  # two computers must not supervise the same run
            raise
        except (ClusterctlError, AgentError, OSError) as error:
            answer = states.ActionFailed(action, _describe(error))
        if answer is not None:
            self._dispatch(answer)

    def _check_stop(self) -> None:
        if self._store.stop_requested(self.record.run_id):
            raise _StopRequested

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check_stop()
            time.sleep(min(left, 0.5))

    @property
    def _abandoned(self) -> bool:
        """Whether the attempt need not be followed any more."""
        return isinstance(self._state, states.Recovering | Finished)

    @property
    def _context(self) -> RunContext:
        return self._state.following.context if isinstance(self._state, states.Diagnosing) else self._state.context

    def _execute(self, action: states.Action) -> states.SupervisorEvent | None:  # noqa: C901, PLR0911  (a table)
        match action:
            case states.ProbePhones():
                return self._probe()
            case states.BackOff():
                self._step_timeout.back_off()
            case states.ExamineFailure():
                return states.FailureExamined(self._examine_failure())
            case states.EndDetection():
                self._timing.end_phase(recovery_timing.DETECTION, action.fault_seen_at)
                self._timing.end_phase(recovery_timing.DIAGNOSIS)
            case states.SaveRecord():
                self._store.save(action.record.with_figures(self.progress))
            case states.TerminateAttempt():
                return self._terminate_attempt(action)
            case states.RecordIncident():
                self._record_incident(action)
            case states.FindCheckpoint():
                found = checkpoints.find_newest(self._fleet, self.spec, self._directory)
                return states.CheckpointsSearched(action.terminated, found)
            case states.StartAttempt():
                return self._start_attempt(action)
            case states.ReportRecovery():
                self._report_recovery(action.step)
            case states.RequestYield():
                return self._request_yield(action.phones)
            case states.ReleasePhones():
                self._release_phones(action)
        return None

    # --------------------------------------------------------------------------------------------------- following

    def _follow_attempt(self) -> None:
        """Return when the newest attempt has ended or is abandoned."""
        record, context = self.record, self._context
        self._step_timeout = StepTimeout(len(self.spec.ranks))
        self._last_event_at = time.monotonic()  # the time between two attempts does not count
        self.progress.error = None  # of an earlier attempt: this one may end before it reports its start
        lost = lost_phones(record, self._fleet.phones)
        self._rejoin = RejoinMonitor(self._fleet, record.run_id, lost, context.history)
        copy = self._store.events_file(record.run_id, record.attempt)
        try:
            with closing(follow(record.run_id, copy, self._head, self._stream_broken, record.attempt)) as events:
                for event in events:
                    self._handle_event(event)
        except _AttemptAbandoned:
            return
        except FollowRefusedError as error:
            self._dispatch(states.FollowRefused(_diagnose_refusal(record, error)))
            return
        self._dispatch(states.AttemptEnded(self.progress.state))

    def _handle_event(self, event: Event) -> None:
        if not self.progress.is_plausible(event):
            return
        self._recorder.record(event)
        if event.kind == "heartbeat":
            self._check_stop()
            self._activity.report_problem("")
        if event.kind not in FOLLOWER_EVENTS:
            self._last_event_at = time.monotonic()
            self._step_timeout.record_activity()
        if isinstance(event, StepEvent):
            self._step_timeout.record_step(event.step_s)
            self._dispatch_in_stream(states.StepCompleted(self.progress.step))
            self._timing.reset()
            self._activity.clear()
        elif event.kind not in FOLLOWER_EVENTS:
            self._dispatch_in_stream(states.RunReported())
        if event.kind in _LAST_EVENTS:
            self._step_timeout = StepTimeout(len(self.spec.ranks))
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self._save()
        if event.kind == "heartbeat":
            self._check_progress()
        if self._abandoned:
            raise _AttemptAbandoned

    def _check_progress(self) -> None:
        """Called twice per second while the head phone sends heartbeats."""
        if self._step_timeout.expired:
            self._dispatch_in_stream(states.StepOverdue())
        waiting = isinstance(self._state, Following) and self._state.stepped and not self._state.yielding
        if waiting and (self.progress.eta_s or 0.0) > REJOIN_MIN_ETA_S and (phones := self._rejoin.poll()):
            in_use = phones_in_use(self._launch, self.record)
            if free := tuple(phone for phone in phones if phone.name not in in_use):
                self._dispatch_in_stream(states.PhonesReturned(free))

    def _stream_broken(self, error: PhoneError) -> None:
        self._check_stop()
        self._activity.report_problem(f"connection to the run lost ({error.message}); retrying")
        self._dispatch_in_stream(states.StreamBroken())
        if self._abandoned:
            raise _AttemptAbandoned

    def _probe(self) -> states.PhonesProbed:
        probes = probe_ranks(self._fleet, self.spec)
        timeout = self._step_timeout
        return states.PhonesProbed(
            probes,
            self.progress.step,
            self._last_event_at,
            timeout.expired,
            first_probe=not timeout.backed_off,
            usual_step_s=timeout.usual_step_s,
        )

    def _request_yield(self, phones: tuple[Phone, ...]) -> states.YieldAccepted | None:
        answer = agent.call(
            self._head(), EndRequested, "yield", self.record.run_id, "--attempt", str(self.record.attempt)
        )
        return states.YieldAccepted(phones) if answer.requested else None

    # -------------------------------------------------------------------------------------------------- diagnosing

    def _examine_failure(self) -> Diagnosis:
        found = diagnose_failure(self.spec, self.progress.error, self._mpirun_log())
        if found.cause is not Cause.RANK_KILLED or found.rank is None:
            return found
        victim = [phone for phone in self._fleet.phones if phone.name == found.rank.phone]
        killers = [probe.killed_by for probe in probe_phones(self._fleet, self.record.run_id, victim, find_killer=True)]
        return replace(found, detail=f"{found.message}, by {killers[0]}") if any(killers) else found

    def _mpirun_log(self) -> str:
        path = layout.attempt_dir(self.record.run_id, self.record.attempt) / layout.MPIRUN_LOG
        try:
            return self._head().run(["tail", "-c", str(_LOG_TAIL_BYTES), "--", str(path)], timeout=10).stdout
        except PhoneError as error:
            return f"(mpirun.log could not be read: {error.message})"

    # -------------------------------------------------------------------------------------------------- recovering

    def _terminate_attempt(self, action: states.TerminateAttempt) -> states.AttemptTerminated:
        self._sleep(action.pause_s)
        in_use = phones_in_use(self._launch, self.record)
        busy = [phone for phone in self._fleet.phones if phone.name in in_use]
        known = {probe.phone: probe for probe in action.unreachable}
        known.update({phone: Probe(phone, in_use=True) for phone in busy})
        asked = [phone for phone in self._fleet.phones if phone not in known]
        for probe in terminate(self._fleet, self.record.run_id, asked):
            known[probe.phone] = without_implausible_state(probe, self.record)
        self._timing.end_phase(recovery_timing.TERMINATION)
        probes = tuple(known[phone] for phone in self._fleet.phones)
        self._activity.report_unable(unable_phones(probes, self._context.history))
        local = checkpoints.newest_local(self._directory)
        return states.AttemptTerminated(
            probes,
            layout.checkpoint_step(local) if local else 0,
            self._store.read(self.record.run_id).min_phones,
        )

    def _start_attempt(self, action: states.StartAttempt) -> states.AttemptStarted | states.StartFailed:
        try:
            self._activity.clear()
            spec, start = self._prepare_attempt(self.spec, action)
            self._check_stop()  # pushing data may have taken minutes
            record = self._store.begin_attempt(self.record.with_figures(self.progress), spec)
            self._dispatch(states.AttemptRecorded(record, spec))
            stage_run(self._launch, spec, start)
            self._timing.end_phase(recovery_timing.STAGING)
            self._check_stop()
            checkpoints.remove_after(self._directory, spec.resume.step)
            self._start_run(spec)
        except (ClusterctlError, AgentError, OSError) as error:
            failure = _diagnose_start(error)
            return states.StartFailed(failure, rejected_by=failure.suspects)
        self.progress.step = spec.resume.step
        return states.AttemptStarted()

    def _start_run(self, spec: RunSpec) -> None:
        try:
            start_run(self._launch, spec)
        except PhoneError as error:
            raise _HeadFailedError(error, spec) from None
        self._timing.end_phase(recovery_timing.START)

    def _release_phones(self, action: states.ReleasePhones) -> None:
        """The newest step is saved for `launch --resume`. If that fails, it stays in memory until `clusterctl stop`."""
        self.progress.state = "failed"
        run_id, free_memory = self.record.run_id, True
        if self.progress.step and not action.discard_state:
            try:
                StopCheckpoint(self._store, self.record, self._fleet, self._activity.report).save()
            except (ClusterctlError, AgentError, OSError) as error:
                free_memory = False
                message = f"the newest step stays in the memory of phones: {_describe(error)}"
                self._add_incident(IncidentKind.CHECKPOINT_MISSING, f"{message}; to free it: clusterctl stop {run_id}")
        terminate(self._fleet, run_id, self._fleet.phones, free_memory=free_memory)

    def _prepare_attempt(self, before: RunSpec, action: states.StartAttempt) -> tuple[RunSpec, InitialState]:
        phones = action.phones
        spec = next_attempt(
            before,
            phones,
            self.record.attempt + 1,
            batches=self.progress.batches,
            choice=self.progress.choice,
        )
        joining = not {phone.name for phone in phones} <= {rank.phone for rank in before.ranks}
        if joining or not spec.data.replicated or action.verify_data:
            spec = push_data(self._launch, spec, find_stored(spec.data), replicate=spec.data.replicated)
        spec = replace(spec, resume=action.resume.spec)
        return spec, InitialState.load(spec, self._directory, action.resume.file)

    # --------------------------------------------------------------------------------------------------- reporting

    def _report_recovery(self, step: int) -> None:
        self._timing.end_phase(recovery_timing.FIRST_STEP)
        phases = self._timing.seconds
        lost_s = sum(phases.values())
        phones = count_of(self.record.phones, "phone")
        message = f"resumed at step {step} on {phones}: {lost_s:.1f} s lost"
        self._add_incident(IncidentKind.RESUMED, message, lost_s=lost_s, phases=phases)

    def _record_incident(self, action: states.RecordIncident) -> None:
        fields = dict(action.fields)
        if action.fault_seen_at is not None:
            fields["detected_at"] = time.time() - (time.monotonic() - action.fault_seen_at)
        self._add_incident(action.kind, action.message, **fields)

    def _add_incident(self, kind: IncidentKind, message: str, **fields: object) -> None:
        log.info("%s: %s", self.record.run_id, message)
        self._recorder.add_incident(kind, message, self.record.attempt, **fields)

    @property
    def _directory(self) -> Path:
        return self._store.directory(self.record.run_id)

    def _head(self) -> PhoneConnection:
        return connection_to(self._fleet, self.record.head)

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        recovering = isinstance(self._state, states.Recovering)  # then the events know less than the record
        record = self.record.with_figures if recovering else self.record.with_progress
        self._store.save(record(self.progress))


def phones_in_use(launch: LaunchContext, record: RunRecord) -> frozenset[str]:
    """Phones of the cluster that belong to other runs. While a launch is in progress, its phones are not recorded yet:
    then a run claims no phone but its own."""
    others = frozenset(name for name, run in launch.store.claims().items() if run.run_id != record.run_id)
    if not launch_in_progress(launch.state):
        return others
    return others | {phone.name for phone in launch.fleet.phones if phone.name not in record.phones}


def _diagnose_refusal(record: RunRecord, error: FollowRefusedError) -> Diagnosis:
    if record.state == "staging":
        return Diagnosis(Cause.NOT_FOLLOWED, detail="never started: the launch was interrupted", permanent=True)
    return Diagnosis(Cause.NOT_FOLLOWED, detail=error.message)


def _describe(error: ClusterctlError | AgentError | OSError) -> str:
    message = error.message if isinstance(error, ClusterctlError) else str(error)
    return one_line(" ".join(message.split()))


def _diagnose_start(error: ClusterctlError | AgentError | OSError) -> Diagnosis:
    """Why the next attempt could not be started. A UsageError would meet every further attempt as well."""
    message = error.summary if isinstance(error, StagingError) else _describe(error)
    advice = f" ({error.remedy})" if isinstance(error, ClusterctlError) and error.remedy else ""
    return Diagnosis(
        error.cause if isinstance(error, StagingError) else Cause.RESTART_FAILED,
        detail=message + advice,
        suspects=tuple(error.phones) if isinstance(error, StagingError | CorruptShardError | _HeadFailedError) else (),
        permanent=isinstance(error, UsageError),
    )
