"""The decisions of the supervisor, as a table: in this state, this event leads to that state and these actions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records.causes import Cause
from orchestrator.records.checkpoints import CheckpointSearch, FoundCheckpoint
from orchestrator.records.incidents import IncidentKind
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.restart_policy import (
    LONGEST_REJOIN_PROBE_S,
    LONGEST_START_RETRY_S,
    MAX_ATTEMPTS_WITHOUT_STEP,
    MAX_FAILURES_WITHOUT_STEP,
    START_RETRY_S,
    STARTS_AT_ONCE,
    FailureHistory,
)
from orchestrator.supervisor.resume_point import ResumePoint
from orchestrator.supervisor.states import (
    Action,
    ActionFailed,
    AttemptEnded,
    AttemptRecorded,
    AttemptStarted,
    AttemptTerminated,
    BackOff,
    CheckpointsSearched,
    Diagnosing,
    EndDetection,
    ExamineFailure,
    FailureExamined,
    FindCheckpoint,
    Finished,
    Following,
    FollowRefused,
    PhonesProbed,
    PhonesReturned,
    ProbePhones,
    Question,
    RecordIncident,
    Recovering,
    ReleasePhones,
    ReportRecovery,
    RequestYield,
    RunContext,
    RunReported,
    SaveRecord,
    StartAttempt,
    StartFailed,
    State,
    StepCompleted,
    StepOverdue,
    StreamBroken,
    SupervisorEvent,
    TerminateAttempt,
    YieldAccepted,
)
from orchestrator.supervisor.transition import MAX_INCOMPLETE_SEARCHES, QUORUM_S, UNREPORTED_STEPS, transition
from phone_agent.contract.committed_step import CommittedStep
from tests.orchestrator.supervisor.samples import FOUR, KILLED, SPEC, ended, idle, record, training, unreachable

NOW = 1000.0
CONTEXT = RunContext(record(), SPEC)
FOLLOWING = Following(CONTEXT)
TRAINING = Following(CONTEXT, stepped=True)
SUSPICIOUS = replace(FOLLOWING, fault_seen_at=990.0)
RECOVERING = Recovering(CONTEXT, KILLED, NOW + 10, fault_seen_at=990.0)
SECOND = replace(SPEC, attempt=1)
STEP_7 = CommittedStep(7, attempt=0)
TERMINATED = AttemptTerminated(idle(), 8)
START = StartAttempt(FOUR, ResumePoint(STEP_7), verify_data=False)
START_FAILED = Diagnosis(Cause.RESTART_FAILED, detail="no room")


def stalled(question: Question = Question.STEP_OVERDUE) -> Diagnosing:
    return Diagnosing(SUSPICIOUS, question)


def probed(*probes: Probe, **changes: Any) -> PhonesProbed:
    return replace(PhonesProbed(probes, 5, NOW - 10, step_overdue=True, first_probe=True), **changes)


def holding(*steps: CommittedStep) -> tuple[Probe, ...]:
    """Every phone holds these steps in memory."""
    return tuple(Probe(phone, in_memory=steps) for phone in FOUR)


def checkpoint_on_phone(step: int) -> tuple[Probe, ...]:
    """One phone has a newer checkpoint than what all hold in memory."""
    return (replace(holding(STEP_7)[0], checkpoint_step=step), *holding(STEP_7)[1:])


def searched(*probes: Probe, step: int | None, damaged: tuple[str, ...] = ()) -> CheckpointsSearched:
    found = FoundCheckpoint(Path(f"checkpoint-{step:08}.safetensors"), step) if step else None
    return CheckpointsSearched(AttemptTerminated(probes, 8), CheckpointSearch(found, damaged))


def decide(state: State, event: SupervisorEvent) -> tuple[State, list[type[Action]]]:
    after, actions = transition(state, event, NOW)
    return after, [type(action) for action in actions]


@pytest.mark.parametrize(
    ("state", "event", "after", "actions"),
    [
        # Following a healthy run
        (FOLLOWING, RunReported(), Following, []),
        (FOLLOWING, StepCompleted(1), Following, []),
        (Following(CONTEXT, restarted=True), StepCompleted(8), Following, [ReportRecovery]),
        (FOLLOWING, AttemptEnded("done"), Finished, []),
        (FOLLOWING, AttemptEnded("stopped"), Finished, []),
        # Following a run that may have failed
        (FOLLOWING, StepOverdue(), Diagnosing, [ProbePhones]),
        (FOLLOWING, StreamBroken(), Diagnosing, [ProbePhones]),
        (FOLLOWING, AttemptEnded("failed"), Diagnosing, [ExamineFailure]),
        (FOLLOWING, AttemptEnded("lost"), Diagnosing, [ExamineFailure]),
        (FOLLOWING, FollowRefused(START_FAILED), Recovering, [SaveRecord, TerminateAttempt]),
        # Following while phones rejoin
        (FOLLOWING, PhonesReturned(FOUR[:1]), Following, []),  # no step yet in this attempt
        (TRAINING, PhonesReturned(FOUR[:1]), Following, [RequestYield]),
        (TRAINING, YieldAccepted(FOUR[:1]), Following, [RecordIncident]),
        (replace(TRAINING, yielding=True), PhonesReturned(FOUR[:1]), Following, []),
        (TRAINING, AttemptEnded("yielded"), Recovering, [SaveRecord, TerminateAttempt]),
        # Diagnosing a stall
        (stalled(), probed(*training()), Following, [BackOff]),
        (stalled(), probed(*unreachable("p2-01", others=training())), Recovering, "restart"),
        (stalled(), probed(*ended()), Following, [BackOff]),  # mpirun is shutting down
        (stalled(), probed(*ended(), first_probe=False), Recovering, "restart"),
        (stalled(), probed(*idle(), first_probe=False), Following, [BackOff]),  # the ranks have not started yet
        # Diagnosing a broken stream
        (stalled(Question.STREAM_BROKEN), probed(*training()), Following, []),
        (stalled(Question.STREAM_BROKEN), probed(*unreachable("p1-01", others=training())), Recovering, "restart"),
        (
            stalled(Question.STREAM_BROKEN),
            probed(*unreachable("p1-01", others=training()), step_overdue=False),
            Following,
            [],
        ),
        # Diagnosing a failed attempt
        (stalled(Question.ATTEMPT_FAILED), FailureExamined(KILLED), Recovering, "restart"),
        # Recovering
        (RECOVERING, AttemptTerminated(holding(STEP_7)), Recovering, [RecordIncident, StartAttempt]),
        (RECOVERING, AttemptTerminated(holding(STEP_7), 7), Recovering, [RecordIncident, StartAttempt]),
        (RECOVERING, AttemptTerminated(holding(STEP_7), 8), Recovering, [FindCheckpoint]),
        (RECOVERING, AttemptTerminated(checkpoint_on_phone(8)), Recovering, [FindCheckpoint]),
        (RECOVERING, AttemptTerminated(idle()), Recovering, [RecordIncident, RecordIncident, StartAttempt]),
        (RECOVERING, AttemptTerminated(unreachable("p1-01", "p1-02")), Recovering, [TerminateAttempt]),
        (
            replace(RECOVERING, quorum_deadline=NOW - 1),
            AttemptTerminated(unreachable("p1-01", "p1-02")),
            Recovering,
            [SaveRecord, RecordIncident, TerminateAttempt],
        ),
        (RECOVERING, AttemptStarted(), Following, []),
        (RECOVERING, StartFailed(START_FAILED), Recovering, [SaveRecord, TerminateAttempt]),
        (
            RECOVERING,
            StartFailed(replace(START_FAILED, permanent=True)),
            Finished,
            [ReleasePhones],
        ),
        # Actions that fail
        (TRAINING, ActionFailed(RequestYield(FOUR[:1]), "timed out"), Following, [RecordIncident]),
        (stalled(), ActionFailed(ProbePhones(), "timed out"), Following, [BackOff]),
        (stalled(Question.ATTEMPT_FAILED), ActionFailed(ExamineFailure(), "timed out"), Recovering, "restart"),
        (RECOVERING, ActionFailed(TerminateAttempt(), "timed out"), Recovering, [TerminateAttempt]),
        (RECOVERING, ActionFailed(FindCheckpoint(TERMINATED), "timed out"), Recovering, [TerminateAttempt]),
        (RECOVERING, ActionFailed(START, "no space left"), Recovering, [SaveRecord, TerminateAttempt]),
        (FOLLOWING, ActionFailed(SaveRecord(record()), "no space left"), Following, []),
        (Finished(CONTEXT), ActionFailed(ReleasePhones(), "timed out"), Finished, []),
        # Events that a state does not expect
        (FOLLOWING, AttemptStarted(), Following, []),
        (stalled(), StepOverdue(), Diagnosing, []),
        (RECOVERING, StepOverdue(), Recovering, []),
        (Finished(CONTEXT), StepOverdue(), Finished, []),
    ],
)
def test_transition(
    state: State, event: SupervisorEvent, after: type[State], actions: list[type[Action]] | str
) -> None:
    expected = [EndDetection, SaveRecord, TerminateAttempt] if actions == "restart" else actions
    found, taken = decide(state, event)
    assert (type(found), taken) == (after, expected)


# ---------------------------------------------------------------------------------------------- what states remember


def test_an_event_of_the_run_clears_suspicion() -> None:
    suspicious = replace(SUSPICIOUS, unreachable=unreachable("p2-01")[2:3])
    assert transition(suspicious, RunReported(), NOW) == (FOLLOWING, ())


def test_the_first_sign_of_a_fault_is_kept_until_the_attempt_fails() -> None:
    diagnosing, _ = transition(SUSPICIOUS, StepOverdue(), NOW)
    assert diagnosing == stalled()
    failed, _ = transition(SUSPICIOUS, AttemptEnded("failed"), NOW)
    assert isinstance(failed, Diagnosing)
    assert failed.following.fault_seen_at == NOW


def test_a_step_forgives_earlier_failures() -> None:
    history = FailureHistory().after_failure(KILLED)
    state, _ = transition(Following(replace(CONTEXT, history=history)), StepCompleted(6), NOW)
    assert isinstance(state, Following)
    assert state.stepped
    assert (state.context.history.attempts_without_step, dict(state.context.history.recent)) == (0, {})


def test_unreachable_phones_are_not_waited_for_again() -> None:
    probes = unreachable("p2-01", others=training())
    state, actions = transition(stalled(), probed(*probes), NOW)
    assert isinstance(state, Recovering)
    assert actions[-1] == TerminateAttempt(unreachable=(probes[2],))
    _, again = transition(state, AttemptTerminated(unreachable("p1-01", "p1-02")), NOW)
    assert [action for action in again if isinstance(action, TerminateAttempt) and not action.unreachable] == [*again]


def test_a_head_phone_that_reports_late_is_not_lost() -> None:
    """The others hold steps in memory that it has not reported yet: it still takes part in training."""
    lost = unreachable("p1-01", others=training())
    ahead = [
        replace(probe, in_memory=(CommittedStep(5 + UNREPORTED_STEPS + 1, 0),)) if probe.answered else probe
        for probe in lost
    ]
    assert decide(stalled(Question.STREAM_BROKEN), probed(*ahead))[1] == []


# ------------------------------------------------------------------------------------------------------- restarts


def test_a_failure_counts_as_a_restart_and_a_yield_does_not() -> None:
    failed, _ = transition(stalled(Question.ATTEMPT_FAILED), FailureExamined(KILLED), NOW)
    yielded, _ = transition(TRAINING, AttemptEnded("yielded"), NOW)
    assert isinstance(failed, Recovering)
    assert isinstance(yielded, Recovering)
    assert (failed.context.record.restarts, failed.context.record.state) == (1, "recovering")
    assert (yielded.context.record.restarts, yielded.failure) == (0, None)
    assert failed.quorum_deadline == NOW + QUORUM_S


def test_a_restart_is_recorded_with_its_cause_and_starts_from_memory() -> None:
    _, (incident, start) = transition(RECOVERING, AttemptTerminated(holding(STEP_7), 5), NOW)
    assert isinstance(incident, RecordIncident)
    assert (incident.kind, incident.fault_seen_at) == (IncidentKind.RESTARTING, 990.0)
    assert incident.fields == {"cause": Cause.RANK_KILLED, "phones": ("p2-01",), "diagnosis": KILLED.headline}
    assert isinstance(start, StartAttempt)
    assert (start.phones, start.resume) == (FOUR, ResumePoint(STEP_7))


def test_the_cause_is_corrected_by_the_phones_that_answer() -> None:
    _, (incident, start) = transition(RECOVERING, AttemptTerminated(unreachable("p2-02", others=holding(STEP_7))), NOW)
    assert isinstance(incident, RecordIncident)
    assert incident.fields["cause"] is Cause.PHONE_UNREACHABLE
    assert isinstance(start, StartAttempt)
    assert [phone.name for phone in start.phones] == ["p1-01", "p1-02", "p2-01"]


def test_a_failed_start_counts_against_the_phones_that_rejected_the_files() -> None:
    state, _ = transition(RECOVERING, StartFailed(START_FAILED, rejected_by=("p1-02",)), NOW)
    assert isinstance(state, Recovering)
    assert state.context.history.recent == {"p1-02": 1}
    assert (state.fault_seen_at, state.failure) == (990.0, START_FAILED)


def test_the_next_attempt_is_known_as_soon_as_it_is_recorded() -> None:
    begun = record(attempt=1, state="starting")
    state, actions = transition(RECOVERING, AttemptRecorded(begun, SECOND), NOW)
    assert isinstance(state, Recovering)
    assert (state.context.record, state.context.spec, actions) == (begun, SECOND, ())


def fail_to_start(state: State, times: int, *rejected_by: str) -> tuple[State, float]:
    """Also returns the pause before the next start."""
    pause_s = 0.0
    for _ in range(times):
        assert isinstance(state, Recovering)
        begun = replace(state.context.record, attempt=state.context.record.attempt + 1, state="starting")
        state, _ = transition(state, AttemptRecorded(begun, SPEC), NOW)
        state, actions = transition(state, StartFailed(START_FAILED, rejected_by), NOW)
        assert isinstance(actions[-1], TerminateAttempt)
        pause_s = actions[-1].pause_s
    return state, pause_s


def test_failed_starts_never_end_a_run_and_are_repeated_less_and_less_often() -> None:
    """The disk of this computer may be full for hours. The phones hold the state in memory meanwhile."""
    failed, _ = transition(stalled(Question.ATTEMPT_FAILED), FailureExamined(KILLED), NOW)
    state, pause_s = fail_to_start(failed, STARTS_AT_ONCE)
    assert pause_s == 0
    assert isinstance(state, Recovering)
    assert state.context.record.state == "recovering"
    for expected_s in (START_RETRY_S, 2 * START_RETRY_S, 4 * START_RETRY_S):
        state, pause_s = fail_to_start(state, 1)
        assert pause_s == expected_s
    state, pause_s = fail_to_start(state, 30)
    assert isinstance(state, Recovering)
    assert pause_s == LONGEST_START_RETRY_S
    assert (state.context.record.state, state.context.record.restarts) == ("interrupted", 1)
    assert state.context.record.failure is not None
    assert state.context.record.failure.headline == "no room; trying again in 600 s"


def test_phones_that_were_left_out_get_another_chance_if_too_few_are_left() -> None:
    state, _ = fail_to_start(RECOVERING, MAX_FAILURES_WITHOUT_STEP, "p1-01", "p1-02")
    late = NOW + QUORUM_S + 1
    waiting, actions = transition(state, AttemptTerminated(holding(STEP_7)), late)
    assert isinstance(waiting, Recovering)
    assert (waiting.waiting, actions[-1]) == (True, TerminateAttempt(pause_s=START_RETRY_S))
    _, restart = transition(waiting, AttemptTerminated(holding(STEP_7)), late)
    assert isinstance(restart[-1], StartAttempt)


def test_a_returning_phone_that_cannot_be_staged_is_asked_less_and_less_often() -> None:
    """The run itself is healthy: it is never given up because of that phone."""
    state: State = Following(replace(CONTEXT, record=record(phones=("p1-01", "p1-02", "p2-02"))), stepped=True)
    pauses_s = []
    for _ in range(12):
        state, _ = transition(state, YieldAccepted(FOUR[2:3]), NOW)
        state, _ = transition(state, AttemptEnded("yielded"), NOW)
        state, _ = fail_to_start(state, MAX_FAILURES_WITHOUT_STEP, "p2-01")
        _, actions = transition(state, AttemptTerminated(holding(STEP_7)), NOW)
        assert isinstance(actions[-1], StartAttempt)
        assert FOUR[2] not in actions[-1].phones
        state, _ = transition(state, AttemptStarted(), NOW)
        state, _ = transition(state, StepCompleted(8), NOW)
        assert isinstance(state, Following)
        pauses_s.append(state.context.history.rejoin_probe_s("p2-01"))
        assert state.context.record.restarts == 0
    assert pauses_s[:3] == [40.0, 80.0, 160.0]
    assert pauses_s[-1] == LONGEST_REJOIN_PROBE_S


# ------------------------------------------------------------------------------------- the state it resumes from


def resumed_from(event: SupervisorEvent, state: Recovering = RECOVERING) -> tuple[int, list[IncidentKind]]:
    """The step that the next attempt resumes from, and the incidents that report it."""
    _, actions = transition(state, event, NOW)
    start = actions[-1]
    assert isinstance(start, StartAttempt)
    return start.resume.step, [action.kind for action in actions if isinstance(action, RecordIncident)]


def test_a_newer_checkpoint_beats_old_memory() -> None:
    """One phone was cut off at step 7; the others went on, and lost their memory."""
    probes = (holding(STEP_7)[0], *idle()[1:])
    restarting, lost = IncidentKind.RESTARTING, IncidentKind.STATE_LOST
    assert resumed_from(searched(*probes, step=15)) == (15, [restarting, lost])


def test_memory_is_used_if_the_newer_checkpoints_are_damaged() -> None:
    event = searched(*holding(STEP_7), step=5, damaged=("checkpoint-00000008.safetensors on this computer",))
    assert resumed_from(event) == (7, [IncidentKind.RESTARTING, IncidentKind.CHECKPOINT_SKIPPED])


def test_a_checkpoint_that_could_not_be_read_is_searched_again() -> None:
    """The next attempt deletes it. Only damaged ones are skipped at once; and no phone blocks the run for ever."""
    probes = (replace(idle()[0], checkpoint_step=15), *idle()[1:])
    search = CheckpointSearch(FoundCheckpoint(Path("checkpoint-00000012.safetensors"), 12))
    terminated = AttemptTerminated(probes, 12)
    assert resumed_from(CheckpointsSearched(terminated, search))[0] == 12
    unread = CheckpointsSearched(terminated, replace(search, unread={FOUR[0].name: "timed out"}))
    state: State = RECOVERING
    for _ in range(MAX_INCOMPLETE_SEARCHES):
        state, actions = transition(state, unread, NOW)
        assert [type(action) for action in actions] == [TerminateAttempt]
    assert isinstance(state, Recovering)
    step, incidents = resumed_from(unread, state)
    assert (step, incidents[0]) == (12, IncidentKind.CHECKPOINT_SKIPPED)
    other = replace(unread, found=replace(search, unread={FOUR[1].name: "timed out"}))
    assert resumed_from(other)[0] == 12, "that phone has no checkpoint"


def test_memory_of_a_phone_that_does_not_take_part_does_not_count() -> None:
    """Its disk is full. No other phone has any state, so the newest checkpoint is used."""
    full = replace(holding(STEP_7)[0], disk_mb=1.0)
    event = AttemptTerminated((full, *idle()[1:]), 5)
    assert decide(RECOVERING, event)[1] == [FindCheckpoint]
    found = searched(full, *idle()[1:], step=5)
    assert resumed_from(found) == (5, [IncidentKind.RESTARTING, IncidentKind.STATE_LOST])


def test_a_phone_that_did_not_hold_what_it_reported_is_not_believed_until_the_next_step() -> None:
    claim = CommittedStep(20, 0)
    probes = (replace(holding(STEP_7)[0], in_memory=(claim,)), *holding(STEP_7)[1:])
    state, actions = transition(RECOVERING, AttemptTerminated(probes), NOW)
    assert isinstance(actions[-1], StartAttempt)
    assert actions[-1].resume.step == 20
    state, _ = transition(state, AttemptStarted(), NOW)
    state, _ = transition(state, AttemptEnded("failed"), NOW)
    state, _ = transition(state, FailureExamined(Diagnosis(Cause.STATE_LOST)), NOW)
    assert isinstance(state, Recovering)
    assert resumed_from(AttemptTerminated(probes), state)[0] == 7
    assert state.context.history.after_step().confirmed_state(probes[0]) == probes[0]


def test_a_resumed_run_never_starts_from_nothing() -> None:
    child = replace(RECOVERING, context=replace(CONTEXT, record=record(parent="parent")))
    assert resumed_from(searched(*idle(), step=12), child)[0] == 12
    after, actions = transition(child, searched(*idle(), step=None), NOW)
    assert isinstance(after, Finished)
    assert actions == (ReleasePhones(),)
    assert after.context.record.failure is not None
    assert "clusterctl launch --resume parent" in after.context.record.failure.headline


# ------------------------------------------------------------------------------------------------------ giving up


def test_a_run_that_makes_no_step_is_given_up_and_its_memory_freed() -> None:
    history = FailureHistory(attempts_without_step=MAX_ATTEMPTS_WITHOUT_STEP - 1)
    state = Diagnosing(Following(replace(CONTEXT, history=history)), Question.ATTEMPT_FAILED)
    after, actions = transition(state, FailureExamined(KILLED), NOW)
    assert isinstance(after, Finished)
    assert after.context.record.state == "failed"
    failure = after.context.record.failure
    assert failure is not None
    assert (failure.cause, failure.phone) == (Cause.RANK_KILLED, "p2-01")
    assert failure.headline == f"{KILLED.headline}; no step was completed in {MAX_ATTEMPTS_WITHOUT_STEP} attempts"
    assert actions[-1] == ReleasePhones()


@pytest.mark.parametrize("permanent", [False, True])
def test_the_memory_of_the_phones_is_discarded_only_if_the_work_is_at_fault(*, permanent: bool) -> None:
    context = replace(CONTEXT, record=record(restarts=20))
    state = Diagnosing(Following(context), Question.ATTEMPT_FAILED)
    _, actions = transition(state, FailureExamined(replace(KILLED, permanent=permanent)), NOW)
    assert actions[-1] == ReleasePhones(discard_state=permanent)


def test_a_run_with_too_few_phones_waits_for_them_and_keeps_their_memory() -> None:
    state = replace(RECOVERING, quorum_deadline=NOW - 1)
    waiting, actions = transition(state, AttemptTerminated(unreachable("p1-01", "p1-02")), NOW)
    assert isinstance(waiting, Recovering)
    assert waiting.context.record.state == "interrupted"
    assert waiting.context.record.failure is not None
    assert "at least 3 needed" in waiting.context.record.failure.headline
    assert actions[-1] == TerminateAttempt(pause_s=START_RETRY_S)
    again, more = transition(waiting, AttemptTerminated(unreachable("p1-01", "p1-02")), NOW)
    assert (again, [type(each) for each in more]) == (waiting, [TerminateAttempt]), "it is reported once"
    back, restart = transition(again, AttemptTerminated(holding(STEP_7)), NOW)
    assert isinstance(back, Recovering)
    assert [type(each) for each in restart] == [RecordIncident, StartAttempt]


@pytest.mark.parametrize(("state", "restarts"), [("running", 1), ("recovering", 0), ("interrupted", 0)])
def test_a_recovery_that_the_next_supervisor_continues_counts_once(state: str, restarts: int) -> None:
    following = Following(replace(CONTEXT, record=record(state=state)))
    recovering, _ = transition(Diagnosing(following, Question.ATTEMPT_FAILED), FailureExamined(KILLED), NOW)
    assert isinstance(recovering, Recovering)
    assert recovering.context.record.restarts == restarts
