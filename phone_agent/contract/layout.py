"""Paths of the agent on a phone, relative to $HOME of Termux.

The host uses these names over SSH (a session starts in $HOME), the agent uses them locally.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

ROOT = PurePosixPath(".clusterctl")
RELEASES = ROOT / "agent" / "releases"
CURRENT = ROOT / "agent" / "current"  # symlink to the release in use, swapped by rename
RUNS = ROOT / "runs"
DATA = ROOT / "data"
WIRED = ROOT / "wired"  # starts a command whose listeners are on the wired address: provisioning/wired.sh

WIRED_ADDRESS = "CLUSTERCTL_WIRED"  # environment: the address that Open MPI may listen on

MPI_RANK = "OMPI_COMM_WORLD_RANK"  # environment, set by mpirun: the rank of this process, known before MPI starts

MANIFEST = "manifest.json"  # inside a release: version, target, sha256 of every file

ATTEMPTS = "attempt-*"


def run_dir(run_id: str) -> PurePosixPath:
    return RUNS / run_id


def attempt_dir(run_id: str, attempt: int) -> PurePosixPath:
    """Each restart of a run is an attempt. The first uses the directory of the run, later ones a directory below it."""
    return run_dir(run_id) / attempt_name(attempt) if attempt else run_dir(run_id)


def attempt_name(attempt: int) -> str:
    return f"attempt-{attempt}"


# Files of an attempt.
RUN_FILE = "run.json"  # RunSpec: the same on every phone
LAUNCH_FILE = "launch.json"  # LaunchSpec: on the head phone, how to start mpirun
HOSTFILE = "hostfile"  # on the head phone
DAEMONS = "daemons"  # on the head phone: the daemons that mpirun asked for, one file per address
RECORD_DAEMON = "record-daemon.sh"  # in DAEMONS: mpirun calls it instead of ssh
STATE_FILE = "state.json"  # on the head phone: starting, running, done, failed, stopped; pid, exit code
JOB_PID_FILE = "pid"  # on the head phone, of a job that is not a run
STOP_FILE = "stop"  # on the head phone: write a checkpoint after the current step and end; that is no failure
MPIRUN_LOG = "mpirun.log"  # on the head phone: what mpirun and all ranks printed
EVENTS_FILE = "events.jsonl"  # on the head phone, written by rank 0: the progress of all ranks
RANK_EVENTS_FILE = "rank.jsonl"  # on every phone: events of that rank
STARTUP_FILE = "startup.jsonl"  # on every phone: when its rank entered each phase of its start-up
RANK_LOG = "rank.log"  # on every phone: log of that rank
TIMELINE_FILE = "timeline.jsonl"  # on every phone: what each thread did and when, written at the end
YIELD_FILE = "yield"  # on the head phone: end the attempt after the current step; another attempt follows

# Files of a run.
MEMCKPT_SOCKET = "memckpt.sock"  # on every phone: the in-memory checkpoint server listens here
MEMCKPT_LOCK = "memckpt.lock"
MEMCKPT_LOG = "memckpt.log"
LEASE_FILE = "lease.json"  # on every phone: which computer supervises the run, and until when
RESUME_FILE = "resume.safetensors"  # on the head phone: the checkpoint to resume from, if any
GPU_FAILURE_FILE = "gpu_failure.json"  # on a phone whose GPU failed: why; it computes on its CPU from then on
WEIGHTS_FILE = "weights.safetensors"  # on the head phone: the initial weights, if given
CHECKPOINTS = "checkpoint-*.safetensors"  # on the phones of train.checkpoint.savers


def checkpoint_file(step: int) -> str:
    return f"checkpoint-{step:08}.safetensors"


def checkpoint_step(path: Path) -> int:
    """The step in the name of a checkpoint file; 0 if the name has none."""
    digits = path.stem.removeprefix("checkpoint-")
    return int(digits) if digits.isdecimal() else 0


def dataset_dir(name: str) -> PurePosixPath:
    """dataset.json and its shards, or some of them."""
    return DATA / name


def local(path: PurePosixPath) -> Path:
    """The path on this phone."""
    return Path.home() / path
