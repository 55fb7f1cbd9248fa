"""The decisions of the supervisor: `transition(state, event, now) -> (next state, actions)`. Pure.

Times are seconds on the monotonic clock. An event that a state does not expect changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.inventory.model import Phone
from orchestrator.records.causes import Cause
from orchestrator.records.checkpoints import CheckpointSearch
from orchestrator.records.incidents import IncidentKind
from orchestrator.supervisor import stall_diagnosis, states
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.life_signs import diagnose_hang, stall_limit_s
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.restart_policy import (
    STARTS_AT_ONCE,
    NoRestart,
    describe_lost_state,
    describe_restart,
    name_phones,
    restart_limit_reached,
    select_phones,
)
from orchestrator.supervisor.resume_point import ResumePoint, choose_resume_point, elect_step, newest_of
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
from phone_agent.contract.committed_step import CommittedStep

QUORUM_S = 45.0  # to wait for phones if too few answer: a switch may just have restarted
QUORUM_PROBE_S = 3.0  # between two rounds of that
MAX_INCOMPLETE_SEARCHES = 5  # then the run resumes from an older checkpoint: a phone must not block it
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
            return _clear_suspicion(state), ()
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
            context = replace(context, history=context.history.after_yield(phone.name for phone in event.phones))
            return replace(state, context=context, yielding=True), (
                states.RecordIncident(IncidentKind.REJOINING, message),
            )
        case states.ActionFailed(states.RequestYield() as request):
            message = f"{name_phones(request.phones)} cannot rejoin yet: {event.message}; will try again"
            return state, (states.RecordIncident(IncidentKind.REJOIN_FAILED, message),)
        case _:
            return state, ()


def _clear_suspicion(state: Following) -> Following:
    return replace(state, fault_seen_at=None, unreachable=())


def _suspicious(state: Following, now: float) -> Following:
    return replace(state, fault_seen_at=state.fault_seen_at or now)


def _stepped(state: Following, event: states.StepCompleted) -> Decision:
    context = replace(state.context, history=state.context.history.after_step())
    actions = (states.ReportRecovery(event.step),) if state.restarted else ()
    return replace(_clear_suspicion(state), context=context, stepped=True, restarted=False), actions


# -------------------------------------------------------------------------------------------------------- diagnosing


def _while_diagnosing(state: Diagnosing, event: SupervisorEvent, now: float) -> Decision:
    following = state.following
    match event:
        case states.PhonesProbed():
            unreachable = tuple(probe for probe in event.probes if probe.unreachable)
            signs = following.signs.after(event.probes, now)
            following = replace(following, unreachable=unreachable, signs=signs)
            failure = _diagnose_probes(replace(state, following=following), event, now)
            if failure is None:
                return following, (states.BackOff(),) if state.question is states.Question.STEP_OVERDUE else ()
            return _detected(following, failure, now)
        case states.FailureExamined():
            return _detected(following, event.diagnosis, now)
        case states.ActionFailed(states.ExamineFailure()):
            return _detected(following, Diagnosis(Cause.UNKNOWN, detail=event.message), now)
        case states.ActionFailed(states.ProbePhones()):
            return following, (states.BackOff(),)
        case _:
            return state, ()


def _diagnose_probes(state: Diagnosing, event: states.PhonesProbed, now: float) -> Diagnosis | None:
    spec = state.following.context.spec
    if state.question is states.Question.STREAM_BROKEN:
        held = newest_of([probe.in_memory for probe in event.probes])
        unreported = held is not None and held.step > event.last_step + UNREPORTED_STEPS
        return stall_diagnosis.diagnose_lost_head(
            spec, event.probes, step_overdue=event.step_overdue and not unreported
        )
    signs = state.following.signs
    starting = event.usual_step_s is None
    failure = stall_diagnosis.diagnose_stall(
        spec, event.probes, first_probe=event.first_probe, starting=starting, quiet=signs.silent_phones(now)
    )
    silent_s = now - max(event.last_event_at, signs.newest)
    if failure is None and silent_s > stall_limit_s(spec, signs, event.usual_step_s):
        return diagnose_hang(spec, signs, silent_s)
    return failure


def _detected(following: Following, failure: Diagnosis, now: float) -> Decision:
    state, actions = _recover(following, failure, now)
    return state, (states.EndDetection(following.fault_seen_at), *actions)


# -------------------------------------------------------------------------------------------------------- recovering


def _recover(before: Following | Recovering, failure: Diagnosis, now: float) -> Decision:
    """Restart the run unless it may not be restarted any more."""
    context = before.context
    history = context.history.after_failure(failure)
    if failure.cause is Cause.STATE_LOST:
        history = history.after_lost_state(context.holders)
    context = replace(context, history=history)
    if refusal := restart_limit_reached(context.record, context.history, failure):
        return _give_up(context, refusal, failure, discard_state=failure.permanent)
    return _restart(replace(before, context=context), failure, now)


def _restart(before: Following | Recovering, failure: Diagnosis | None, now: float) -> Decision:
    context = before.context
    is_new_failure = failure is not None and context.record.state not in _COUNTED
    restarts = context.record.restarts + is_new_failure
    context = replace(context, record=replace(context.record, state="recovering", restarts=restarts))
    seen_at = before.fault_seen_at if failure else None
    state = Recovering(context, failure, now + QUORUM_S, seen_at, before.unreachable)
    return state, (states.SaveRecord(context.record), states.TerminateAttempt(before.unreachable))


def _while_recovering(state: Recovering, event: SupervisorEvent, now: float) -> Decision:  # noqa: PLR0911  (a table)
    match event:
        case states.AttemptTerminated():
            return _select(_with_min_phones(state, event.min_phones), event, now)
        case states.CheckpointsSearched():
            return _use_found(state, event)
        case states.AttemptRecorded():
            return replace(state, context=replace(state.context, record=event.record, spec=event.spec)), ()
        case states.AttemptStarted():
            return Following(state.context, restarted=True, unreachable=state.unreachable), ()
        case states.StartFailed():
            return _start_again(state, event, now)
        case states.ActionFailed(states.StartAttempt()):
            failure = Diagnosis(Cause.RESTART_FAILED, detail=event.message)
            return _start_again(state, states.StartFailed(failure), now)
        case states.ActionFailed(states.TerminateAttempt() | states.FindCheckpoint()):
            if now <= state.quorum_deadline:
                return state, (states.TerminateAttempt(pause_s=QUORUM_PROBE_S),)
            return _wait_for_phones(state, Diagnosis(Cause.RESTART_FAILED, detail=event.message))
        case _:
            return state, ()


def _with_min_phones(state: Recovering, min_phones: int | None) -> Recovering:
    if min_phones is None:
        return state
    record = replace(state.context.record, min_phones=min_phones)
    return replace(state, context=replace(state.context, record=record))


def _select(state: Recovering, event: states.AttemptTerminated, now: float) -> Decision:
    """Wait for more phones if too few answer. Search for a checkpoint only if one may be newer than all memory: to
    verify one takes a while."""
    context = state.context
    event = replace(event, probes=tuple(map(context.history.confirmed_state, event.probes)))
    phones = select_phones(context.record, event.probes, context.history)
    if not isinstance(phones, NoRestart):
        in_memory = _elect_step(event, phones)
        on_phones = max((probe.checkpoint_step for probe in event.probes), default=0)
        if max(event.checkpoint_step, on_phones) > (in_memory.step if in_memory else 0):
            return state, (states.FindCheckpoint(event),)
        return _start(state, event, CheckpointSearch())
    if now <= state.quorum_deadline:
        return state, (states.TerminateAttempt(pause_s=QUORUM_PROBE_S),)
    forgiven = replace(context, history=context.history.while_waiting())
    return _wait_for_phones(replace(state, context=forgiven), phones.explain(_refine(state, event)))


def _use_found(state: Recovering, event: states.CheckpointsSearched) -> Decision:
    """Search again if a phone has a newer checkpoint that could not be read: the next attempt would delete it."""
    terminated, found = event.terminated, event.found
    held = newest_of([probe.in_memory for probe in terminated.probes if not probe.problem])
    newest = max(found.newest.step if found.newest else 0, held.step if held else 0)
    missed = [
        probe for probe in terminated.probes if probe.checkpoint_step > newest and probe.phone.name in found.unread
    ]
    if missed and state.incomplete_searches < MAX_INCOMPLETE_SEARCHES:
        again = replace(state, incomplete_searches=state.incomplete_searches + 1)
        return again, (states.TerminateAttempt(pause_s=QUORUM_PROBE_S),)
    after, actions = _start(state, terminated, found)
    return after, (*(_report_unread(probe, found) for probe in missed), *actions)


def _report_unread(probe: Probe, found: CheckpointSearch) -> states.RecordIncident:
    reason = found.unread[probe.phone.name]
    message = f"skipped the checkpoint of step {probe.checkpoint_step} on {name_phones([probe.phone])}: {reason}"
    return states.RecordIncident(IncidentKind.CHECKPOINT_SKIPPED, message)


def _start(state: Recovering, event: states.AttemptTerminated, search: CheckpointSearch) -> Decision:
    """Start the next attempt, from the newest state that its phones hold or that was found."""
    context, failure = state.context, _refine(state, event)
    phones = select_phones(context.record, event.probes, context.history)
    if isinstance(phones, NoRestart):
        return _wait_for_phones(state, phones.explain(failure))
    resume = choose_resume_point(_elect_step(event, phones), search.newest)
    if context.record.parent and not resume.step:
        return _give_up(context, _no_initial_state(context.record.parent), failure)
    message = describe_restart(context.record, failure, phones, resume)
    fields = {"cause": failure.cause, "phones": failure.phones, "diagnosis": failure.headline} if failure else {}
    holders = tuple(probe.phone.name for probe in event.probes if resume.in_memory in probe.in_memory)
    return replace(state, context=replace(context, holders=holders), failure=failure), (
        states.RecordIncident(IncidentKind.RESTARTING, message, fields, state.fault_seen_at),
        *_report_lost_state(event, phones, resume, search),
        states.StartAttempt(phones, resume, context.history.should_verify_data(phones)),
    )


def _start_again(state: Recovering, event: states.StartFailed, now: float) -> Decision:
    """No rank ran, so a failed start does not count as a restart, and the memory of the phones is intact."""
    context, failure = state.context, event.diagnosis
    history = context.history.after_failed_start(event.rejected_by)
    context = replace(context, history=history, record=replace(context.record, state="recovering"))
    if failure.permanent:
        return _give_up(context, NoRestart(""), failure)
    again = replace(state, context=context, failure=failure, quorum_deadline=now + QUORUM_S, waiting=False)
    if history.failed_starts > STARTS_AT_ONCE:
        retry = NoRestart(f"trying again in {history.start_retry_s:g} s")
        return _wait_for_phones(again, retry.explain(failure))
    return again, (states.SaveRecord(context.record), states.TerminateAttempt(state.unreachable))


def _refine(state: Recovering, event: states.AttemptTerminated) -> Diagnosis | None:
    if state.failure is None:
        return None
    return stall_diagnosis.refine_diagnosis(state.failure, state.context.spec, event.probes)


def _elect_step(event: states.AttemptTerminated, phones: Sequence[Phone]) -> CommittedStep | None:
    return elect_step([probe.in_memory for probe in event.probes if probe.phone in phones])


def _report_lost_state(
    event: states.AttemptTerminated, phones: Sequence[Phone], resume: ResumePoint, search: CheckpointSearch
) -> Iterator[states.RecordIncident]:
    for damaged in search.damaged:
        yield states.RecordIncident(IncidentKind.CHECKPOINT_SKIPPED, f"skipped the damaged checkpoint {damaged}")
    if lost := describe_lost_state(event.probes, phones, resume):
        yield states.RecordIncident(IncidentKind.STATE_LOST, lost)


def _no_initial_state(parent: str) -> NoRestart:
    return NoRestart(f"the checkpoint it resumed from is missing or damaged; try: clusterctl launch --resume {parent}")


def _wait_for_phones(state: Recovering, diagnosis: Diagnosis) -> Decision:
    """Their checkpoints stay in memory until enough of them are back."""
    wait = states.TerminateAttempt(pause_s=state.context.history.start_retry_s)
    if state.waiting:
        return state, (wait,)
    record = replace(state.context.record, state="interrupted", failure=diagnosis.to_failure())
    waiting = replace(state, context=replace(state.context, record=record), waiting=True)
    incident = states.RecordIncident(IncidentKind.WAITING, diagnosis.headline)
    return waiting, (states.SaveRecord(record), incident, wait)


def _give_up(
    context: RunContext, refusal: NoRestart, failure: Diagnosis | None, *, discard_state: bool = False
) -> Decision:
    diagnosis = refusal.explain(failure)
    record = replace(context.record, state="failed", failure=diagnosis.to_failure())
    return Finished(replace(context, record=record)), (states.ReleasePhones(discard_state),)
