"""The decisions of the supervisor: `transition(state, event, now) -> (next state, actions)`. Pure.

Times are seconds on the monotonic clock. An event that a state does not expect changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.records.causes import Cause
from orchestrator.records.incidents import IncidentKind
from orchestrator.supervisor import stall_diagnosis, states
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.probe import newest_in_memory
from orchestrator.supervisor.restart_policy import (
    NoRestart,
    describe_restart,
    name_phones,
    restart_limit_reached,
    select_phones,
)
from orchestrator.supervisor.states import (
    Action,
    Diagnosing,
    Finished,
    Following,
    Recovering,
    RunContext,
    State,
    SupervisorEvent,
)

STALL_S = 300.0  # without an event, although every rank is alive
QUORUM_S = 45.0  # to wait for phones if too few answer: a switch may just have restarted
QUORUM_PROBE_S = 3.0  # between two rounds of that
WAITING_PROBE_S = 15.0  # between two rounds once the run is interrupted
UNREPORTED_STEPS = 2  # that may be complete, and held in memory, before the head phone reports them
_FAILED = frozenset({"failed", "lost"})
_COUNTED = frozenset({"recovering", "interrupted"})  # the record of a run whose failure is counted as a restart already

Decision = tuple[State, tuple[Action, ...]]


def transition(state: State, event: SupervisorEvent, now: float) -> Decision:
    match state:
        case Following():
            return _while_following(state, event, now)
        case Diagnosing():
            return _while_diagnosing(state, event, now)
        case Recovering():
            return _while_recovering(state, event, now)
        case Finished():
            return state, ()


# --------------------------------------------------------------------------------------------------------- following


def _while_following(state: Following, event: SupervisorEvent, now: float) -> Decision:  # noqa: C901, PLR0911  (a table)
    context = state.context
    match event:
        case states.RunReported():
            return _heard(state), ()
        case states.StepCompleted():
            return _stepped(state, event)
        case states.StepOverdue():
            return Diagnosing(_suspicious(state, now), states.Question.STEP_OVERDUE), (states.ProbePhones(),)
        case states.StreamBroken():
            return Diagnosing(_suspicious(state, now), states.Question.STREAM_BROKEN), (states.ProbePhones(),)
        case states.AttemptEnded() if event.run_state in _FAILED:
            failed = replace(state, fault_seen_at=now)
            return Diagnosing(failed, states.Question.ATTEMPT_FAILED), (states.ExamineFailure(),)
        case states.AttemptEnded() if event.run_state == "yielded":
            return _restart(state, None, now)
        case states.AttemptEnded():
            return Finished(context), ()
        case states.FollowRefused():
            return _recover(replace(state, fault_seen_at=state.fault_seen_at or now), event.diagnosis, now)
        case states.PhonesReturned() if state.stepped and not state.yielding:
            return state, (states.RequestYield(event.phones),)
        case states.YieldAccepted():
            verbs = ("answers", "rejoins") if len(event.phones) == 1 else ("answer", "rejoin")
            message = f"{name_phones(event.phones)} {verbs[0]} again: {verbs[1]} after the current step"
            return replace(state, yielding=True), (states.RecordIncident(IncidentKind.REJOINING, message),)
        case _:
            return state, ()


def _heard(state: Following) -> Following:
    return replace(state, fault_seen_at=None, unreachable=())


def _suspicious(state: Following, now: float) -> Following:
    return replace(state, fault_seen_at=state.fault_seen_at or now)


def _stepped(state: Following, event: states.StepCompleted) -> Decision:
    context = replace(state.context, history=state.context.history.after_step())
    actions = (states.ReportRecovery(event.step),) if state.restarted else ()
    return replace(_heard(state), context=context, stepped=True, restarted=False), actions


# -------------------------------------------------------------------------------------------------------- diagnosing


def _while_diagnosing(state: Diagnosing, event: SupervisorEvent, now: float) -> Decision:
    following = state.following
    match event:
        case states.PhonesProbed():
            unreachable = tuple(probe for probe in event.probes if probe.unreachable)
            following = replace(following, unreachable=unreachable)
            failure = _diagnose_probes(state, event, now)
            if failure is None:
                return following, (states.BackOff(),) if state.question is states.Question.STEP_OVERDUE else ()
            return _detected(following, failure, now)
        case states.FailureExamined():
            return _detected(following, event.diagnosis, now)
        case _:
            return state, ()


def _diagnose_probes(state: Diagnosing, event: states.PhonesProbed, now: float) -> Diagnosis | None:
    spec = state.following.context.spec
    if state.question is states.Question.STREAM_BROKEN:
        unreported = newest_in_memory(event.probes) > event.last_step + UNREPORTED_STEPS
        return stall_diagnosis.diagnose_lost_head(
            spec, event.probes, step_overdue=event.step_overdue and not unreported
        )
    failure = stall_diagnosis.diagnose_stall(spec, event.probes, first_probe=event.first_probe)
    if failure is None and now - event.last_event_at > STALL_S:
        return Diagnosis(Cause.NO_PROGRESS, detail=f"no progress for {STALL_S:.0f} s, although every rank is alive")
    return failure


def _detected(following: Following, failure: Diagnosis, now: float) -> Decision:
    state, actions = _recover(following, failure, now)
    return state, (states.EndDetection(following.fault_seen_at), *actions)


# -------------------------------------------------------------------------------------------------------- recovering


def _recover(before: Following | Recovering, failure: Diagnosis, now: float) -> Decision:
    """Restart the run unless it may not be restarted any more."""
    context = before.context
    context = replace(context, history=context.history.after_failure(failure))
    if refusal := restart_limit_reached(context.record, context.history, failure):
        return _give_up(context, refusal, failure)
    return _restart(replace(before, context=context), failure, now)


def _restart(before: Following | Recovering, failure: Diagnosis | None, now: float) -> Decision:
    context = before.context
    counts = failure is not None and context.record.state not in _COUNTED
    restarts = context.record.restarts + counts
    context = replace(context, record=replace(context.record, state="recovering", restarts=restarts))
    seen_at = before.fault_seen_at if failure else None
    state = Recovering(context, failure, now + QUORUM_S, seen_at, before.unreachable)
    return state, (states.SaveRecord(context.record), states.TerminateAttempt(before.unreachable))


def _while_recovering(state: Recovering, event: SupervisorEvent, now: float) -> Decision:
    match event:
        case states.AttemptTerminated():
            return _select(state, event, now)
        case states.AttemptStarted():
            context = replace(state.context, record=event.record, spec=event.spec)
            return Following(context, restarted=True, unreachable=state.unreachable), ()
        case states.StartFailed():
            history = state.context.history.after_staging_failure(event.rejected_by)
            context = replace(state.context, record=event.record, spec=event.spec, history=history)
            return _recover(replace(state, context=context), event.diagnosis, now)
        case _:
            return state, ()


def _select(state: Recovering, event: states.AttemptTerminated, now: float) -> Decision:
    """Choose the phones of the next attempt; wait for more if too few answer."""
    context, failure = state.context, state.failure
    phones = select_phones(context.record, event.probes, context.history)
    if isinstance(phones, NoRestart) and now <= state.quorum_deadline:
        return state, (states.TerminateAttempt(pause_s=QUORUM_PROBE_S),)
    if failure is not None:
        failure = stall_diagnosis.refine_diagnosis(failure, context.spec, event.probes)
    if isinstance(phones, NoRestart):
        return _wait_for_phones(state, phones.explain(failure))
    message = describe_restart(context.record, failure, phones, event.probes)
    fields = {"cause": failure.cause, "phones": failure.phones, "diagnosis": failure.headline} if failure else {}
    return replace(state, failure=failure), (
        states.RecordIncident(IncidentKind.RESTARTING, message, fields, state.fault_seen_at),
        states.StartAttempt(phones, newest_in_memory(event.probes), context.history.should_verify_data(phones)),
    )


def _wait_for_phones(state: Recovering, diagnosis: Diagnosis) -> Decision:
    """Their checkpoints stay in memory until enough of them are back."""
    wait = states.TerminateAttempt(pause_s=WAITING_PROBE_S)
    if state.waiting:
        return state, (wait,)
    record = replace(state.context.record, state="interrupted", failure=diagnosis.to_failure())
    waiting = replace(state, context=replace(state.context, record=record), waiting=True)
    incident = states.RecordIncident(IncidentKind.WAITING, diagnosis.headline)
    return waiting, (states.SaveRecord(record), incident, wait)


def _give_up(context: RunContext, refusal: NoRestart, failure: Diagnosis) -> Decision:
    diagnosis = refusal.explain(failure)
    record = replace(context.record, state="failed", failure=diagnosis.to_failure())
    return Finished(replace(context, record=record)), (states.ReleasePhones(),)
