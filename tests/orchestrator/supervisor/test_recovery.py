"""What becomes of a run that lost a phone: decided from what is known, without a phone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.launch.request import LaunchRequest
from orchestrator.launch.resume import check_resume, resumed_run
from orchestrator.plan.apportion import deal
from orchestrator.records.causes import Cause
from orchestrator.records.events import Event, Progress, parse_event
from orchestrator.records.record import RunRecord, RunStore
from orchestrator.records.tensorboard import TensorBoard
from orchestrator.supervisor import stall_diagnosis, supervisor
from orchestrator.supervisor.deadline import FIRST_S, FLOOR_S, Deadline
from orchestrator.supervisor.diagnosis import Diagnosis, diagnose
from orchestrator.supervisor.probe import LeasedError, Sight, end, look
from orchestrator.supervisor.recovery import FRUITLESS, GiveUp, Memory, choose, hopeless
from orchestrator.supervisor.supervisor import Guard
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import CommunicationSpec
from phone_agent.job.lease import SECONDS, take
from tests.orchestrator.launch.samples import event, phones, spec

if TYPE_CHECKING:
    from orchestrator.launch.launcher import Launcher

SPEC = spec(4, switches=2)
FOUR = phones(4, 2)
KILLED = Diagnosis(Cause.RANK_KILLED, "its rank was killed", SPEC.ranks[2])


def record(**changes: Any) -> RunRecord:
    names = tuple(phone.name for phone in FOUR)
    fresh = RunRecord("run", "lenet", names[0], names, 20, 0.0, wanted=names, min_phones=3, max_restarts=20)
    return replace(fresh, **changes)


# ------------------------------------------------------------------------------------------------------- batches


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20))
def test_what_phones_took_they_take_again(batches: list[int]) -> None:
    assert deal(sum(batches), batches) == tuple(batches)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.integers(0, 1000))
def test_every_image_is_dealt_and_every_phone_gets_one(weights: list[float], more: int) -> None:
    dealt = deal(len(weights) + more, weights)
    assert sum(dealt) == len(weights) + more
    assert min(dealt) >= 1


def test_a_lost_phones_images_go_to_the_others() -> None:
    again = next_attempt(SPEC, (*FOUR[:2], FOUR[3]), 1)
    assert [(rank.rank, rank.phone, rank.batch) for rank in again.ranks] == [
        (0, "p1-01", 11),
        (1, "p1-02", 11),
        (2, "p2-02", 10),
    ]
    assert (again.global_batch, again.attempt) == (SPEC.global_batch, 1)


def test_shares_that_moved_while_it_ran_stay_moved() -> None:
    assert [rank.batch for rank in next_attempt(SPEC, FOUR, 1, batches=(10, 10, 10, 2)).ranks] == [10, 10, 10, 2]
    assert [rank.batch for rank in next_attempt(SPEC, FOUR, 1, batches=(11, 11, 10, 0)).ranks] == [10, 11, 10, 1]
    assert [rank.batch for rank in next_attempt(SPEC, FOUR[2:], 1, batches=(16, 16, 0, 0)).ranks] == [16, 16]


def test_what_was_measured_is_not_measured_again_but_lies_are_not_believed() -> None:
    auto = replace(SPEC, communication=CommunicationSpec("auto", "auto"))
    choice: dict[str, Any] = {"algorithm": "hierarchical", "wire": "fp16", "bucket_bytes": 8 << 20, "group": 2}
    again = next_attempt(auto, FOUR, 1, choice=choice)
    assert again.communication == CommunicationSpec("hierarchical", "fp16", bucket_bytes=8 << 20, group_size=2)
    lies: dict[str, Any] = {"algorithm": "; rm -rf", "wire": ["x"], "bucket_bytes": -1, "group": "2"}
    assert replace(next_attempt(auto, FOUR, 1, choice=lies), attempt=0) == auto


def test_a_resumed_run_is_a_new_one_with_the_same_work() -> None:
    resumed = resumed_run(replace(SPEC, attempt=3, weights="weights.safetensors"), FOUR[:2], done=12)
    assert (resumed.attempt, resumed.parent, resumed.resume) == (0, SPEC.run_id, "resume.safetensors")
    assert (resumed.global_batch, resumed.steps, resumed.weights) == (SPEC.global_batch, SPEC.steps, "")
    with pytest.raises(UsageError, match="has done 20 steps already"):
        resumed_run(SPEC, FOUR, done=20)
    check_resume(LaunchRequest(steps=40))
    with pytest.raises(UsageError, match="--lr cannot change"):
        check_resume(LaunchRequest(learning_rate=0.1))


# ------------------------------------------------------------------------------------------------------ policies


def test_only_what_a_phone_did_is_tried_again() -> None:
    memory = Memory()
    assert hopeless(record(), memory, KILLED) is None
    assert hopeless(record(), memory, replace(KILLED, hopeless=True)) is not None
    over = hopeless(record(restarts=20), memory, KILLED)
    assert over is not None
    assert "--max-restarts 20" in over.reason


def test_attempts_that_get_nowhere_come_to_an_end() -> None:
    memory = Memory()
    for _ in range(FRUITLESS - 1):
        memory.failed(KILLED)
    assert hopeless(record(), memory, KILLED) is None
    memory.failed(KILLED)
    assert hopeless(record(), memory, KILLED) is not None
    memory.stepped()
    assert hopeless(record(), memory, KILLED) is None


def names(chosen: object) -> list[str]:
    assert isinstance(chosen, tuple)
    return [phone.name for phone in chosen]


def test_phones_that_answer_go_on_and_spares_step_in() -> None:
    sights = [Sight(phone) for phone in FOUR[:2]] + [Sight(FOUR[2], "no answer"), Sight(FOUR[3])]
    three = record(wanted=("p1-01", "p1-02", "p2-01"), spares=("p2-02",))
    assert names(choose(three, sights, Memory())) == ["p1-01", "p1-02", "p2-02"]
    assert names(choose(record(), sights, Memory())) == ["p1-01", "p1-02", "p2-02"]
    everybody = [Sight(phone) for phone in FOUR]
    assert names(choose(three, everybody, Memory())) == ["p1-01", "p1-02", "p2-01"], "a spare goes back to waiting"


def test_too_few_phones_are_a_clear_end_that_can_be_taken_back() -> None:
    over = choose(record(), [Sight(FOUR[0]), *(Sight(phone, "no answer") for phone in FOUR[1:])], Memory())
    assert isinstance(over, GiveUp)
    assert over.may_go_on
    assert "1 phone of 4 left, 3 are the least (--min-phones); clusterctl attach run" in over.reason


def test_the_end_is_told_with_what_it_came_from() -> None:
    over = choose(record(), [Sight(FOUR[0]), *(Sight(phone, "no answer") for phone in FOUR[1:])], Memory())
    assert isinstance(over, GiveUp)
    told = over.after(KILLED)
    assert told.headline == f"{KILLED.headline}; {over.reason}"
    assert GiveUp("").after(KILLED) == KILLED
    assert GiveUp("too often").after(KILLED).headline == f"{KILLED.headline}; too often"


def test_phones_that_do_not_take_what_an_attempt_needs_are_left_out_the_second_time() -> None:
    memory, sights = Memory(), [Sight(phone) for phone in FOUR]
    memory.refused(["p1-02", "p2-01"])
    assert len(names(choose(record(), sights, memory))) == 4
    memory.refused(["p1-02"])
    assert names(choose(record(), sights, memory)) == ["p1-01", "p2-01", "p2-02"]


def test_what_lies_on_phones_is_looked_at_where_one_of_them_failed() -> None:
    memory = Memory()
    assert memory.doubts(FOUR), "nobody saw how it ended"
    memory.failed(KILLED)
    assert KILLED.phone
    failed = [phone for phone in FOUR if phone.name == KILLED.phone.phone]
    others = [phone for phone in FOUR if phone not in failed]
    assert memory.doubts(failed)
    assert not memory.doubts(others)


def test_a_phone_that_fails_again_and_again_is_left_out_until_a_step_is_done() -> None:
    memory, sights = Memory(), [Sight(phone) for phone in FOUR]
    memory.failed(KILLED)
    assert len(names(choose(record(), sights, memory))) == 4
    memory.failed(KILLED)
    assert names(choose(record(), sights, memory)) == ["p1-01", "p1-02", "p2-02"]
    assert memory.probe_after_s("p2-01") > memory.probe_after_s("p1-01")


@pytest.mark.parametrize(
    ("status", "phase", "code", "cause"),
    [
        (Status.UNREACHABLE, Phase.TCP, ErrorCode.CONNECTION_REFUSED, Cause.SSHD_DOWN),
        (Status.UNREACHABLE, Phase.BANNER, ErrorCode.CONNECTION_CLOSED, Cause.SSHD_DOWN),
        (Status.UNREACHABLE, Phase.TCP, ErrorCode.NO_ANSWER, Cause.PHONE_UNREACHABLE),
        (Status.UNREACHABLE, Phase.EXEC, ErrorCode.CONNECTION_LOST, Cause.PHONE_UNREACHABLE),
        (Status.FAILED, Phase.EXEC, ErrorCode.TIMED_OUT, Cause.AGENT_FAILED),
        (Status.FAILED, Phase.EXEC, ErrorCode.UNKNOWN, Cause.AGENT_FAILED),
    ],
)
def test_a_phone_without_sshd_is_told_from_one_that_is_gone(
    status: Status, phase: Phase, code: ErrorCode, cause: Cause
) -> None:
    outcome: Outcome[Any] = Outcome(FOUR[0], status, 0.0, phase=phase, error="any words", code=code)
    (sight,) = look(answering(outcome), "run", FOUR[:1])
    assert (sight.cause, sight.code) == (cause, code)
    assert sight.unfit


def answering(outcome: Outcome[Any]) -> Any:
    """A fleet of one phone."""
    return SimpleNamespace(map=lambda _task, _phones, **_: Outcomes((outcome,)))


def test_a_run_that_another_computer_supervises_is_left_alone() -> None:
    error, code = "laptop looks after it", ErrorCode.LEASE_HELD
    leased: Outcome[Any] = Outcome(FOUR[0], Status.FAILED, 0.0, phase=Phase.EXEC, error=error, code=code)
    with pytest.raises(LeasedError, match=f"^{error}$"):
        end(answering(leased), "run", FOUR[:1])
    (sight,) = end(answering(replace(leased, code=ErrorCode.NO_SUCH_RUN)), "run", FOUR[:1])
    assert sight.cause is Cause.AGENT_FAILED


def test_a_full_disk_keeps_a_phone_out() -> None:
    assert Sight(FOUR[0], disk_mb=3.0).unfit == "its disk is full (3 MB free)"
    assert Sight(FOUR[0], disk_mb=3000.0).unfit is None


# ------------------------------------------------------------------------------------------------------- causes


def working() -> list[Sight]:
    return [Sight(phone, ranks=1, moves=True) for phone in FOUR]


@pytest.mark.parametrize(
    ("sight", "headline"),
    [
        (Sight(FOUR[2], "timed out"), "p2-01 (sw2:1): does not answer: cable or power"),
        (Sight(FOUR[2], ranks=0), "p2-01 (sw2:1): its rank is gone"),
        (Sight(FOUR[2], ranks=1, frozen=True), "p2-01 (sw2:1): its rank is frozen: it is there, but gets nowhere"),
        (Sight(FOUR[2], "connection refused", refused=True), None),
        (Sight(FOUR[2], ranks=1, moves=True), None),
    ],
)
def test_a_stall_has_a_cause_or_is_only_slow(sight: Sight, headline: str | None) -> None:
    sights = working()
    sights[2] = sight
    found = stall_diagnosis.stalled(SPEC, sights)
    assert (found and found.headline) == headline


def test_several_ranks_that_are_gone_at_once_are_mpiruns_doing() -> None:
    """It ends all when one is killed, and will say which: whoever looks in the middle of that must not guess."""
    sights = [Sight(FOUR[0], ranks=1, moves=True), Sight(FOUR[1]), Sight(FOUR[2]), Sight(FOUR[3], ranks=1)]
    assert stall_diagnosis.stalled(SPEC, sights) is None
    found = stall_diagnosis.stalled(SPEC, sights, again=True)
    assert found is not None
    assert found.headline == "p1-02 (sw1:2): its rank is gone"


def test_an_agent_that_is_slow_once_is_let_be() -> None:
    sights = [*working()[:3], Sight(FOUR[3], "look: not done after 6 s", fails=True)]
    assert stall_diagnosis.stalled(SPEC, sights) is None
    found = stall_diagnosis.stalled(SPEC, sights, again=True)
    assert found is not None
    assert found.headline == "p2-02 (sw2:2): its agent fails: look: not done after 6 s"


def test_a_head_phone_with_a_full_disk_cannot_tell_of_steps() -> None:
    sights = [replace(sight, disk_mb=0.0) if sight.phone is FOUR[0] else sight for sight in working()]
    found = stall_diagnosis.stalled(SPEC, sights)
    assert found is not None
    assert found.headline == "p1-01 (sw1:1): its disk is full (0 MB free)"
    assert stall_diagnosis.stalled(SPEC, [*working()[:3], replace(working()[3], disk_mb=0.0)]) is None


def test_who_is_not_on_the_network_is_the_cause_whoever_waits_for_it() -> None:
    sights = [Sight(FOUR[0], ranks=1, frozen=True), *working()[1:3], Sight(FOUR[3], "not on the network")]
    found = stall_diagnosis.stalled(SPEC, sights)
    assert found is not None
    assert found.headline == "p2-02 (sw2:2): does not answer: cable or power"


def test_a_head_phone_is_gone_when_no_step_is_done_without_it() -> None:
    sights = [Sight(FOUR[0], "not on the network"), *working()[1:]]
    assert stall_diagnosis.head_is_gone(SPEC, sights) is None
    found = stall_diagnosis.head_is_gone(SPEC, sights, overdue=True)
    assert found is not None
    assert found.headline == "p1-01 (sw1:1): does not answer: cable or power"


def test_a_head_phone_is_gone_only_when_the_others_have_noticed() -> None:
    gone = Sight(FOUR[0], "timed out")
    ended = [Sight(phone) for phone in FOUR[1:]]
    found = stall_diagnosis.head_is_gone(SPEC, [gone, *ended])
    assert found is not None
    assert found.headline == "p1-01 (sw1:1): does not answer: cable or power"
    assert stall_diagnosis.head_is_gone(SPEC, [gone, *working()[1:]]) is None
    assert stall_diagnosis.head_is_gone(SPEC, [Sight(FOUR[0]), *ended]) is None
    assert stall_diagnosis.head_is_gone(SPEC, [gone, *(Sight(phone, "timed out") for phone in FOUR[1:])]) is None


def test_who_does_not_answer_afterwards_was_the_cause() -> None:
    lost = [Sight(phone, "timed out" if phone.name == "p2-02" else None) for phone in FOUR]
    assert stall_diagnosis.refined(Diagnosis(Cause.UNKNOWN, "mpirun left no word"), SPEC, lost).headline.startswith(
        "p2-02 (sw2:2): does not"
    )
    assert stall_diagnosis.refined(KILLED, SPEC, [Sight(phone) for phone in FOUR]) == KILLED
    both = [Sight(phone, "timed out" if phone.switch == "sw2" else None) for phone in FOUR]
    assert stall_diagnosis.refined(KILLED, SPEC, both).headline.startswith("p2-01 (sw2:1): does not")
    told = stall_diagnosis.refined(Diagnosis(Cause.UNKNOWN, "?"), SPEC, both).headline
    assert told == "p2-01 (sw2:1), p2-02 (sw2:2) do not answer: cable, switch or power"


def test_what_is_certain_stands_unless_somebody_is_gone() -> None:
    log = "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).\n"
    killed = diagnose(SPEC, None, log)
    assert killed.certain
    elsewhere = [Sight(phone, "refused" if phone.name == "p1-02" else None, refused=True) for phone in FOUR]
    assert stall_diagnosis.refined(killed, SPEC, elsewhere) == killed
    full = [Sight(phone, disk_mb=0.0 if phone.name == "p2-01" else 900.0) for phone in FOUR]
    assert stall_diagnosis.refined(killed, SPEC, full) == killed
    gone = [Sight(phone, "timed out" if phone.name == "p1-02" else None) for phone in FOUR]
    assert stall_diagnosis.refined(killed, SPEC, gone).headline == "p1-02 (sw1:2): does not answer: cable or power"


def test_who_lost_contact_but_is_there_may_not_be_the_one_whose_cable_is_loose() -> None:
    """As seen when the head phone's own cable flapped."""
    log = "  Remote daemon: [[20351,0],2] on node 10.77.2.1\n"
    lost = diagnose(SPEC, None, log)
    assert lost.headline == "p2-01 (sw2:1): lost contact: power, cable or a killed Termux"
    told = stall_diagnosis.refined(lost, SPEC, [Sight(phone) for phone in FOUR]).headline
    assert told.startswith("p1-01 (sw1:1), p2-01 (sw2:1) lost contact with each other: ")
    gone = [Sight(phone, "timed out" if phone.name == "p2-01" else None) for phone in FOUR]
    assert stall_diagnosis.refined(lost, SPEC, gone).headline == "p2-01 (sw2:1): does not answer: cable or power"


def test_a_full_disk_explains_what_mpirun_only_felt() -> None:
    """As seen with Open MPI: who cannot write its session's files gives up, or hangs up, or hits a bus error."""
    full = [Sight(phone, disk_mb=0.0 if phone.name == "p2-01" else 900.0) for phone in FOUR]
    for log in (
        "MPI_ABORT was invoked on rank 2 in communicator",
        "Peer host:  10.77.2.1",
        "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 7 (Bus error).",
    ):
        told = stall_diagnosis.refined(diagnose(SPEC, None, log), SPEC, full)
        assert told.headline == "p2-01 (sw2:1): its disk is full (0 MB free)"


def test_a_neighbours_complaint_is_not_the_cause() -> None:
    complaint = parse_event(
        event("error", 1.0, phone="p1-02", rank=1, message="Exception: MPI_ERR_OTHER", code="mpi_failed", fault="phone")
    )
    log = "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).\n"
    assert diagnose(SPEC, complaint, log).headline == "p2-01 (sw2:1): its rank was killed (signal 9 (Killed))"
    assert diagnose(SPEC, complaint, "").headline.startswith("p1-02 (sw1:2): Exception")
    mistake = parse_event(event("error", 1.0, phone="p1-02", rank=1, message="no such layer", fault="work"))
    assert diagnose(SPEC, mistake, log).hopeless


# ----------------------------------------------------------------------------------------------------- deadlines


def test_a_step_is_overdue_by_how_long_steps_took() -> None:
    now = 0.0
    deadline = Deadline(lambda: now)
    assert deadline.limit_s == FIRST_S
    for seconds in (10.0, 10.5, 9.5, 10.0):
        deadline.step(seconds)
    assert 20 < deadline.limit_s < 40
    overdue = [(deadline.passed, deadline.in_vain)]
    now = deadline.limit_s + 1
    overdue.append((deadline.passed, deadline.in_vain))
    deadline.nothing_found()
    overdue.append((deadline.passed, deadline.in_vain))
    assert overdue == [(False, False), (True, False), (False, True)]
    assert deadline.limit_s > 40, "patience grows where nothing was wrong"
    for _ in range(100):
        deadline.step(0.01)
    assert deadline.limit_s == FLOOR_S


# ------------------------------------------------------------------------------------------- progress and leases


def test_progress_goes_on_over_attempts() -> None:
    progress = Progress(20)
    for line in (
        event("start", 1.0),
        event("step", 2.0, step=1, step_s=1.0, loss=2.0),
        event("rebalance", 2.0, batches=[9, 8, 8, 7]),
        event("error", 3.0, message="x"),
        event("end", 3.0, state="failed"),
    ):
        heard = parse_event(line)
        assert heard is not None
        progress.update(heard)
    assert (progress.state, progress.batches) == ("failed", (9, 8, 8, 7))
    progress.update(Event("incident", 4.0, fields={"message": "p2-01 (sw2:1): gone"}))
    progress.update(Event("start", 5.0))
    assert (progress.state, progress.error, progress.batches) == ("running", None, ())
    assert (progress.step, progress.incidents) == (1, ["p2-01 (sw2:1): gone"])


def test_an_attempt_that_never_started_is_not_blamed_on_who_ended_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    launcher = cast("Launcher", SimpleNamespace(store=store, fleet=SimpleNamespace(phones=FOUR)))
    watching = Guard(launcher, store.create(SPEC), lambda *_: None, lambda *_: None)
    damaged = parse_event(event("error", 1.0, phone="p2-01", rank=2, message="sample 3 is damaged"))
    ended = [Event("end", 2.0, fields={"state": "failed"})]
    monkeypatch.setattr(supervisor, "follow", lambda *_: iter(ended))
    monkeypatch.setattr(watching, "_mpirun_log", lambda: "ssh: connect to host 10.77.2.2 port 8022: No route to host\n")
    with TensorBoard(tmp_path) as watching._figures:
        watching.progress.error = damaged
        found = watching._follow()
    assert found is not None
    assert found.headline == "p2-02 (sw2:2): the head phone cannot reach it (No route to host)"


def test_a_failed_attempt_is_not_the_end_of_a_run(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    made = store.create(spec(5))
    assert (made.min_phones, made.wanted, made.over) == (3, made.phones, False)
    failed = made.with_progress(Progress(20, state="failed"))
    assert (failed.state, failed.over) == ("interrupted", False)
    second = store.begin_attempt(made, next_attempt(spec(5), phones(5)[1:], 1))
    assert (second.attempt, second.head, len(second.phones), len(second.wanted)) == (1, "p1-02", 4, 5)
    assert store.find(made.run_id) == second
    assert store.spec(made.run_id, 1).attempt == 1
    assert store.spec(made.run_id).attempt == 0


def test_one_computer_at_a_time_looks_after_a_run(tmp_path: Path) -> None:
    now = 1000.0

    def clock() -> float:
        return now

    assert take(tmp_path, "a", clock) is None
    assert take(tmp_path, "a", clock) is None
    held = take(tmp_path, "b", clock)
    assert held is not None
    assert held.holder == "a"
    now += SECONDS + 1
    assert take(tmp_path, "b", clock) is None
    now = 5.0  # the phone was restarted
    assert take(tmp_path, "a", clock) is None
    (tmp_path / "lease.json").write_text("rubbish")
    assert take(tmp_path, "c", clock) is None
