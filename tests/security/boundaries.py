"""Everything that reads what a phone sends, or what a file from elsewhere contains, with good inputs to start from.

A reader may raise the errors that are listed, and nothing else. What it accepts must be plausible: that is asserted.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image
from rich.console import Console

from orchestrator.bench import allreduce, linpack
from orchestrator.bootstrap.android_facts import parse_android_facts
from orchestrator.bootstrap.apk.folder import _contents
from orchestrator.data.push import _parse_replies
from orchestrator.data.sources import folder, pickled, recognize
from orchestrator.errors import ClusterctlError, InventoryError, UsageError
from orchestrator.fleet import agent
from orchestrator.health.doctor_facts import parse_doctor_facts
from orchestrator.health.phone_health import evaluate_health
from orchestrator.health.vitals import parse_vitals
from orchestrator.inference.model import read_weights
from orchestrator.inventory import load
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.logs.collect import collect_from_phone
from orchestrator.logs.merged_log import write_merged_log
from orchestrator.logs.trace import break_down_steps, read_trace, to_chrome_trace
from orchestrator.logs.unpack import Limits
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.steps.agent import failed_checks
from orchestrator.provision.termux.index import parse_packages
from orchestrator.provision.termux_facts import parse_termux_facts
from orchestrator.records.activity import Activity
from orchestrator.records.checkpoints import fetch, find_newest
from orchestrator.records.events import CheckpointEvent, Progress, StepEvent, parse_event
from orchestrator.records.run_status import derive_status
from orchestrator.records.tensorboard import records
from orchestrator.selftest.query import parse_row as parse_check_row
from orchestrator.selftest.query import read_result
from orchestrator.supervisor import states
from orchestrator.supervisor.diagnosis import diagnose_failure
from orchestrator.supervisor.probe import probe_phones
from orchestrator.supervisor.step_timeout import StepTimeout
from orchestrator.supervisor.transition import transition
from orchestrator.text import one_line
from orchestrator.tune.device_kinds import read_kind
from orchestrator.tune.measure import parse_row as parse_tune_row
from orchestrator.tune.store import TuneStore
from orchestrator.view.run_format import format_phone_event, format_step
from orchestrator.view.run_live import render_run
from orchestrator.view.run_summary import _communication, _outcome, summary_json
from orchestrator.view.status import render_status
from phone_agent.contract import safetensors
from phone_agent.contract.dataset_delivery import read_delivery
from phone_agent.contract.dataset_manifest import ManifestError, parse_manifest
from phone_agent.contract.decode import DecodeError, parse_json
from phone_agent.contract.device_study import document, read_study_request
from phone_agent.contract.device_study import parse_row as parse_study_row
from phone_agent.contract.errors import AgentError, error_line, read_error_line
from phone_agent.contract.replies import (
    AllreduceReport,
    CheckpointInfo,
    DatasetFiles,
    DatasetRemoved,
    DeviceKindReply,
    EndRequested,
    LinpackReport,
    RunProbe,
    RunSummary,
    Started,
    Stopped,
)
from phone_agent.contract.schema import LaunchSpec, RunSpec, SchemaError
from phone_agent.contract.shards import open_shard, write_shard
from phone_agent.contract.text import last_lines, lines
from phone_agent.contract.tune import TuneRequest, read_tune_request
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.packing import State
from phone_agent.train import checkpoint
from tests.orchestrator.bench.test_linpack import PHONES as LINPACK_PHONES
from tests.orchestrator.bench.test_linpack import REPORT as LINPACK_REPORT
from tests.orchestrator.bench.test_linpack import planned
from tests.orchestrator.bootstrap.apks import apk, binary_xml, manifest
from tests.orchestrator.data.samples import archive, cifar10_binary, cifar10_python
from tests.orchestrator.data.samples import pickled as pickle_of_python_2
from tests.orchestrator.device_study.samples import rows as study_rows
from tests.orchestrator.launch.idx import write_idx
from tests.orchestrator.launch.samples import event, telemetry
from tests.orchestrator.logs.tars import END, member
from tests.orchestrator.supervisor.samples import FOUR, KILLED, SPEC, record
from tests.orchestrator.tune.test_compute_choice import ANSWER as KIND
from tests.orchestrator.tune.test_compute_choice import TUNED
from tests.phone_agent.backends.test_cpu_backend import _small
from tests.phone_agent.phones import run_spec
from tests.security.hostile import HostileFleet, HostilePhone, as_base64

HEAD, LIMITS = FOUR[0], Limits(files=8, file_bytes=4000, total_bytes=40_000, seconds=5.0)
RUN_ID = SPEC.run_id


@dataclass(frozen=True)
class Boundary:
    name: str
    read: Callable[[bytes, Path], object]  # the input, and a directory to write to
    corpus: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()
    weight: int = 10  # the share of inputs


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _line(raw: Any) -> bytes:
    return json.dumps(raw).encode()


def _assert_harmless(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in text), repr(text)[:200]


# ------------------------------------------------------------------------------------------- events of a run


CONTENT = b"checkpoint" * 700
CHECKPOINT = {
    "file": "checkpoint-00000010.safetensors",
    "bytes": len(CONTENT),
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
}
EVENTS = b"".join(
    [
        event("start", 1000.0, world=4, backend="cpu", resumed=0),
        event("comm_plan", 1000.1, algorithm="hierarchical", wire="fp16", bucket_bytes=8 << 20, group=2,
              predicted_s=0.1, limit_s=0.05),
        event("step", 1001.0, step=1, loss=2.3, learning_rate=0.1, images_per_s=90.0, step_s=0.5, compute_s=0.4,
              comm_s=0.1, hottest={"phone": "p1-02", "temperature_c": 44.0}),
        event("rebalance", 1001.5, step=2, batches=[8, 8, 8, 8], reason="p1-02 is slow"),
        event("pause", 1002.0, reason="p1-02 pauses: too hot"),
        event("resume", 1003.0, reason="p1-02 resumes"),
        event("warning", 1003.5, message="p1-03: the disk is nearly full"),
        event("checkpoint", 1004.0, step=10, **CHECKPOINT),
        event("evaluate", 1005.0, step=10, samples=100, top1=0.5, top5=0.9, loss=1.1),
        event("step", 1006.0, step=20, loss=0.5, images_per_s=95.0, step_s=0.4, compute_s=0.3, comm_s=0.1),
        event("error", 1006.5, message="MPI_ERR_OTHER\nlast lines", code="mpi_failed", fault="phone"),
        event("done", 1007.0, loss=0.5, images_per_s=95.0, seconds=7.0, test_accuracy=0.9, line_rate_fraction=0.8,
              exposed_comm_fraction=0.2),
        event("end", 1008.0, state="done", rc=0),
    ]
)  # fmt: skip


def _progress(raw: bytes) -> Progress:
    progress = Progress(SPEC.steps)
    for line in raw.splitlines()[:30]:
        if found := parse_event(line):
            progress.update(found)
            assert found.kind != "incident"
            assert 0 <= progress.step <= SPEC.steps
            _assert_harmless(format_phone_event(found))
            list(records(found))
            if isinstance(found, StepEvent):
                timeout = StepTimeout()
                timeout.record_step(found.step_s)
                assert timeout.limit_s < 1e9
            if isinstance(found, CheckpointEvent):
                assert found.name == Path(found.name).name
    return progress


def read_events(raw: bytes, _: Path) -> None:
    _progress(raw)


def read_views(raw: bytes, _: Path) -> None:
    """The live view, the plain view, the summary and its JSON document."""
    progress = _progress(raw)
    console = Console(file=io.StringIO(), width=100, color_system=None)
    status = derive_status(record(), progress, Activity(), 1.0, 1.0, 4.0)
    console.print(render_run(SPEC, progress, status))
    console.print(format_step(progress), _outcome(progress), _communication(progress), markup=False)
    _assert_harmless(cast("io.StringIO", console.file).getvalue())
    json.dumps(summary_json(SPEC, progress, None), allow_nan=False)


# ------------------------------------------------------------------------------------------------- supervisor


PROBE = {"ranks": [{"pid": 7, "state": "R", "cpu_s": 1.0, "progressing": True}], "held_steps": [[0, 9], [0, 10]],
         "disk_mb": 900.0, "memory_mb": 512.0, "killed_by": "lmkd", "attempt": 0, "state": "running"}  # fmt: skip
CONTEXT = states.RunContext(record(), SPEC)


def read_supervisor(raw: bytes, _: Path) -> None:
    """A hostile head phone: its events, its error, its log, and its answer to a probe drive the state machine."""
    progress, replies = _progress(raw), raw.splitlines() or [b""]
    fleet = cast("Any", HostileFleet(FOUR, lambda phone: HostilePhone(phone, replies)))
    probes = probe_phones(fleet, RUN_ID, FOUR, find_killer=True)
    for probe in probes:
        _assert_harmless(f"{probe.error}{probe.killed_by}{probe.problem_detail}")
    failure = diagnose_failure(SPEC, progress.error, _text(raw))
    _assert_harmless(failure.headline)
    reports: list[states.SupervisorEvent] = [
        states.StepCompleted(progress.step),
        states.StepOverdue(),
        states.PhonesProbed(probes, progress.step, 0.0, step_overdue=True, first_probe=False),
        states.AttemptEnded(progress.state),
        states.FailureExamined(failure),
        states.AttemptTerminated(probes),
    ]
    for state in (states.Following(CONTEXT, stepped=True), states.Recovering(CONTEXT, KILLED, 10.0)):
        current: states.State = state
        for each in reports:
            current, actions = transition(current, each, 100.0)
            assert all(not isinstance(action, states.RecordIncident) or action.message for action in actions)
    following = next_attempt(SPEC, FOUR[:3], 1, batches=progress.batches, choice=progress.choice)
    assert following.global_batch == SPEC.global_batch


# ------------------------------------------------------------------------------------ checkpoints and log collection


def read_checkpoints(raw: bytes, directory: Path) -> None:
    """What a phone says that it has, and what it then sends. Copies on this computer survive."""
    here = Path(tempfile.mkdtemp(dir=directory))
    try:
        kept = here / "checkpoint-00000005.safetensors"
        kept.write_bytes(b"a good copy, for all that this phone knows")
        reply, _, content = raw.partition(b"\n")
        hostile = HostilePhone(HEAD, [reply], [as_base64(content)])
        find_newest(cast("Any", HostileFleet(FOUR[:1], lambda _: hostile)), SPEC, here)
        announced = parse_event(b'{"event": "checkpoint", ' + reply[1:])
        if isinstance(announced, CheckpointEvent):
            try:
                fetch(HostilePhone(HEAD, [b""], [as_base64(content)]), SPEC, announced, here)
            except ClusterctlError as error:
                _assert_harmless(error.message)
                assert kept.exists()
        assert all(path.parent == here for path in here.rglob("*"))
        assert sum(path.stat().st_size for path in here.iterdir()) <= 2 * len(raw) + 100
    finally:
        shutil.rmtree(here)


def read_archive(raw: bytes, directory: Path) -> None:
    """Files of a run, collected and merged; nothing but plain files in the directory of the phone."""
    here = Path(tempfile.mkdtemp(dir=directory))
    try:
        collect_from_phone(HostilePhone(HEAD, [b""], [as_base64(raw)]), RUN_ID, here, LIMITS)
        write_merged_log(here, {HEAD.name: HEAD.where})
        merged = [here / "merged.log", here / "merged.jsonl"]
        written = [path for path in here.rglob("*") if path not in {here / HEAD.name, *merged}]
        assert all(path.parent == here / HEAD.name and path.is_file() and not path.is_symlink() for path in written)
        assert sum(path.stat().st_size for path in written) <= LIMITS.total_bytes
        assert len(written) <= LIMITS.files
        _assert_harmless(merged[0].read_text())
    finally:
        shutil.rmtree(here)


def read_timeline(raw: bytes, directory: Path) -> None:
    path = directory / "timeline"
    path.write_bytes(raw)
    trace = read_trace(path, "p1-01")
    json.dumps(to_chrome_trace([trace]), allow_nan=False)
    break_down_steps(trace)


TIMELINE = b'{"rank": 0, "offset_s": 0.5, "offset_error_s": 0.001}\n["forward", 1, 1.0, 1.5]\n["wait", 1, 1.5, 1.7]'
ARCHIVE = member(b"rank.log", b"2026-01-31 12:00:00,250 hello\n") + member(b"events.jsonl", EVENTS[:400]) + END


# ---------------------------------------------------------------------------------------------- replies of agents


REPLIES: dict[str, tuple[Any, Any]] = {
    "probe": (RunProbe, PROBE),
    "start": (Started, {"pid": 3}),
    "stop": (Stopped, {"stopped": True, "state": "done"}),
    "runs": (tuple[RunSummary, ...], [{"id": RUN_ID, "attempt": 0, "state": "running", "step": 3, "head": True}]),
    "yield": (EndRequested, {"requested": True}),
    "write-checkpoint": (
        CheckpointInfo,
        {"step": 3, "file": "checkpoint-00000003.safetensors", "bytes": 9, "sha256": "0" * 64},
    ),
    "data-list": (DatasetFiles, {"digest": "d", "free_bytes": 9, "files": {"a.shard": "0" * 64}}),
    "data-remove": (DatasetRemoved, {"removed": True}),
    "device-kind": (DeviceKindReply, KIND),
    "linpack": (LinpackReport, LINPACK_REPORT),
    "allreduce-bench": (
        AllreduceReport,
        {"seconds": 1.0, "all": [1.0], "bytes": 9, "encoded_bytes": 9, "sent_bytes": 9, "cpu_seconds": 1.0,
         "correct": True},
    ),
}  # fmt: skip


def read_replies(raw: bytes, _: Path) -> None:
    """Every command is answered with this; what passes is used."""
    for command, (kind, _good) in REPLIES.items():
        try:
            reply = agent.call(HostilePhone(HEAD, [raw]), kind, command)
        except ClusterctlError as error:
            assert error.message.startswith(f"invalid reply of {HEAD.name} to {command}")  # noqa: PT017
            _assert_harmless(error.message)
            continue
        _assert_harmless(repr(reply))
        if isinstance(reply, DeviceKindReply):
            _assert_harmless(read_kind(reply).name)
        elif isinstance(reply, LinpackReport) and len(reply.phones) == len(LINPACK_PHONES):
            linpack._result(planned(n=100), LINPACK_PHONES, reply)
        elif isinstance(reply, AllreduceReport):
            assert allreduce._result(allreduce.AllreduceRequest(1.0), 4, 1e8, reply).line_rate_fraction >= 0


def read_rows(raw: bytes, _: Path) -> None:
    for parse in (parse_tune_row, parse_study_row, parse_check_row):
        for line in raw.splitlines()[:5]:
            try:
                row: Any = parse(line)
            except DecodeError as error:
                _assert_harmless(str(error))
                continue
            _assert_harmless(repr(row))
            if parse is parse_check_row:
                read_result(row)


ROWS = (
    _line({"part": "best", "images_per_s": 9.0, "device_config": asdict(TUNED.device_config)}),
    _line({"part": "cpu", "what": "4 threads", "step_s": 0.1, "images_per_s": 40.0}),
    _line({"check": "kernel", "status": "ok", "detail": "Linux", "evidence": {"version": "1"}}),
    *(_line(document(row)) for row in {type(row): row for row in study_rows()}.values()),
)


def read_status(raw: bytes, _: Path) -> None:
    """Telemetry, as `status` shows it."""
    from orchestrator.fleet.result import Outcome, Outcomes, Status

    for text in ("agent\n" + _text(raw), "shell\n" + _text(raw)):
        vitals = parse_vitals(text, _text(raw)[:200], (0.0, 1.0))
        health = evaluate_health(Outcomes(tuple(Outcome(phone, Status.OK, 0.1, vitals) for phone in FOUR)))
        console = Console(file=io.StringIO(), width=100, color_system=None)
        console.print(render_status("rack", health, (100, 50)))
        _assert_harmless(cast("io.StringIO", console.file).getvalue())


def read_facts(raw: bytes, _: Path) -> None:
    text = _text(raw)
    parse_doctor_facts(text, (0.0, 1.0))
    for parse in (parse_termux_facts, parse_android_facts):
        try:
            parse(text)
        except ClusterctlError as error:
            _assert_harmless(error.message)


def read_complaints(raw: bytes, _: Path) -> None:
    """Error output, in all ways in which it reaches a terminal."""
    text = _text(raw)
    read_error_line(text)
    code, message = agent.reported(text, 1)
    for shown in (message, failed_checks(text, ""), one_line(text), lines(text), last_lines(text)):
        _assert_harmless(shown)
    _assert_harmless(ClusterctlError(f"{code}: {explain_failure(text).message}").message)
    _parse_replies(text)


READY = (Path(__file__).parents[1] / "orchestrator" / "provision" / "data" / "facts-ready.txt").read_bytes()
COMPLAINTS = (
    error_line(AgentError("no room\n\x1b[2J")).encode(),
    _line({"ok": False, "checks": [{"name": "mpi4py", "ok": False, "detail": "gone"}]}),
    _line({"phone": "p1-01", "error": "no space left", "code": "disk_full", "damaged": None}),
    b"E: Could not get lock /var/lib/dpkg/lock-frontend\nTraceback (most recent call last):\n",
)

# ------------------------------------------------------------------------------------------- files from elsewhere


def _file(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes, Path], object]:
    def write_and_read(raw: bytes, directory: Path) -> object:
        path = directory / name
        path.write_bytes(raw)
        return read(path)

    return write_and_read


def _written(write: Callable[[Path], object], name: str = "file") -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / name)
        return (Path(directory) / name).read_bytes()


def _write_checkpoint(path: Path) -> None:
    made = checkpoint.build_metadata(run_spec((4,)), State(_small(), 1), Synthetic(100, (28, 28, 1), 10, seed=0))
    safetensors.write(path, {"conv.weight": np.zeros((3, 3), np.float32)}, {**made, "step": "7"})


def _read_shard(path: Path) -> None:
    shard = open_shard(path)
    images, labels = np.empty((len(shard), *shard.header.shape), np.uint8), np.empty(len(shard), np.int64)
    shard.read(np.arange(len(shard)), images, labels)


def _read_manifest(path: Path) -> None:
    found = parse_manifest(parse_json(path.read_bytes()))
    assert all(file.name == Path(file.name).name for file in found.files)
    assert all(side > 0 for side in found.shape)
    assert np.isfinite(np.asarray([*found.mean, *found.std], np.float64)).all()


def _picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray((np.arange(32 * 24 * 3) % 251).astype(np.uint8).reshape(24, 32, 3)).save(file, kind)
    return file.getvalue()


def _zip_of(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(name, content)
    return file.getvalue()


def _read_idx(raw: bytes, directory: Path) -> None:
    """The images or the labels are replaced."""
    target = directory / "idx"
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        shutil.rmtree(target, ignore_errors=True)
        write_idx(target, 4, 2, side=5)
        (target / name).write_bytes(raw)
        try:
            recognize(target, 8)
        except UsageError:
            continue


@cache
def _idx_files() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as directory:
        write_idx(Path(directory) / "idx", 4, 2, side=5)
        return tuple(path.read_bytes() for path in sorted((Path(directory) / "idx").iterdir()))


def _archives() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        made = (cifar10_binary(root / "binary", each=1), cifar10_python(root / "python", each=1))
        plain = [archive(each, root / f"{each.name}.tar") for each in made]
        return tuple(path.read_bytes() for path in (*plain, archive(made[0], root / "binary.tar.gz")))


def _read_dataset(path: Path) -> None:
    source = recognize(path, 8)
    for block in (*source.train(), *source.test()):
        assert len(block.images) == len(block.labels)


MANIFEST = {
    "version": 1, "name": "tiny", "format": "idx", "shape": [4, 4, 1], "class_names": ["a", "b"], "mean": [0.5],
    "std": [0.25], "test": [],
    "train": [{"name": "train-00000.shard", "samples": 5, "bytes": 100, "sha256": "0" * 64}],
}  # fmt: skip
DELIVERY = {"manifest": MANIFEST, "route": [{"phone": "p1", "address": "10.77.1.1", "port": 8022, "files": []}]}
PACKAGES = b"""Package: bash
Version: 5.3.0-1
Architecture: aarch64
Depends: readline (>= 8.0), libandroid-support | libc
Filename: pool/main/b/bash/bash_5.3.0-1_aarch64.deb
Size: 1000
Installed-Size: 2
SHA256: 0000000000000000000000000000000000000000000000000000000000000000

"""
INVENTORY = b"""cluster: rack
network: {subnet: 10.77.0.0/16, host: 10.77.0.1}
switches:
  sw1:
    ports: 8
    phones: &all
      - {ports: 1-4, name: "p1-{port:02}", address: "10.77.1.{port}"}
"""
MANIFEST_XML = manifest("com.termux")
TENSORS: dict[str, Any] = {"w": np.ones((2, 3), np.float32), "b": np.ones(4, np.int8)}


def _read_delivery(raw: bytes, _: Path) -> None:
    read_delivery(io.BytesIO(raw + b"\n"))


def _read_requests(raw: bytes, _: Path) -> None:
    for read in (read_study_request, read_tune_request):
        try:
            read(_text(raw))
        except AgentError:
            continue


BOUNDARIES = (
    Boundary("events", read_events, tuple(EVENTS.splitlines()), weight=60),
    Boundary("views", read_views, (EVENTS,), weight=6),
    Boundary("supervisor", read_supervisor, (EVENTS + _line(PROBE), _line(PROBE)), weight=10),
    Boundary("checkpoints", read_checkpoints, (_line({"newest": CHECKPOINT, "damaged": ["x"]}) + b"\n" + CONTENT,
                                               _line(CHECKPOINT) + b"\n" + CONTENT), weight=10),
    Boundary("log collection", read_archive, (ARCHIVE,), (ClusterctlError,), weight=10),
    Boundary("timelines", read_timeline, (TIMELINE,), (ClusterctlError,)),
    Boundary("replies", read_replies, tuple(_line(good) for _, good in REPLIES.values()), weight=40),
    Boundary("rows", read_rows, ROWS, weight=40),
    Boundary("status", read_status, (telemetry().partition("\n")[2].encode(),), weight=3),
    Boundary("facts", read_facts, (READY,), weight=6),
    Boundary("complaints", read_complaints, COMPLAINTS, weight=30),
    Boundary("safetensors", _file(safetensors.read), (_written(lambda path: safetensors.write(path, TENSORS)),),
             (AgentError,), weight=20),
    Boundary("checkpoint files", _file(checkpoint.read), (_written(_write_checkpoint),), (AgentError,)),
    Boundary("shards", _file(_read_shard), (_written(lambda path: write_shard(
        path, np.zeros((5, 4, 4, 1), np.uint8), np.arange(5))),), (AgentError,), weight=20),
    Boundary("dataset manifests", _file(_read_manifest), (_line(MANIFEST),), (ManifestError, DecodeError), weight=20),
    Boundary("dataset deliveries", _read_delivery, (_line(DELIVERY),), (AgentError,), weight=20),
    Boundary("run.json", lambda raw, _: RunSpec.from_json(_text(raw)), (run_spec((4,)).to_json().encode(),),
             (SchemaError,), weight=20),
    Boundary("launch.json", lambda raw, _: LaunchSpec.from_json(_text(raw)),
             (LaunchSpec("run", ("mpirun",), {"A": "1"}).to_json().encode(),), (SchemaError,), weight=20),
    Boundary("requests", _read_requests, (b'{"parts": ["sweep"], "widths": [8], "batch": 4}',
                                          _line(asdict(TuneRequest("lenet", 8, 10.0)))), weight=20),
    Boundary("tuned.json", _file(lambda path: TuneStore(path).read()), (_line({"kind": asdict(TUNED)}),),
             (ClusterctlError,)),
    Boundary("pickles", lambda raw, _: pickled.read(raw), (pickle_of_python_2({b"data": [1, b"x"]}, 2),),
             (pickled.UnsupportedPickleError,), weight=30),
    Boundary("dataset archives", _file(_read_dataset, "archive.tar.gz"), _archives(), (UsageError,), weight=2),
    Boundary("idx files", _read_idx, _idx_files(), weight=3),
    Boundary("pictures", _file(lambda path: folder.decode(path, 16)), (_picture("PNG"), _picture("JPEG")),
             (Exception,), weight=6),  # PIL raises anything; the importer records it as a damaged picture
    Boundary("npz", _file(read_weights, "w.npz"), (_written(lambda path: np.savez_compressed(path, **TENSORS), "w.npz"),
                                                   _written(lambda path: np.savez(path, **TENSORS), "w.npz")),
             (UsageError,), weight=6),
    Boundary("apks", _file(_contents), (apk("com.termux"), _zip_of("AndroidManifest.xml", binary_xml(MANIFEST_XML))),
             (ValueError,), weight=6),
    Boundary("package indexes", lambda raw, _: parse_packages(_text(raw)), (PACKAGES * 2,), (ClusterctlError,)),
    Boundary("inventories", _file(load), (INVENTORY,), (InventoryError,), weight=6),
)  # fmt: skip
