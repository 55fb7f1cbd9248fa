"""`python -m orchestrator.supervisor CLUSTER`: the process that `service.py` or systemd starts."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from logging.handlers import RotatingFileHandler

from orchestrator.paths import ClusterState
from orchestrator.process_lock import LockHeldError
from orchestrator.supervisor.process import SupervisorProcess
from orchestrator.supervisor.systemd import Unit

MAX_LOG_BYTES = 1 << 20  # of each of two files

log = logging.getLogger("orchestrator.supervisor")


def main() -> int:
    parser = argparse.ArgumentParser(prog="orchestrator.supervisor")
    parser.add_argument("cluster")
    parser.add_argument("--unit", action="store_true", help="started by systemd")
    arguments = parser.parse_args()
    state = ClusterState(arguments.cluster)
    state.root.mkdir(parents=True, exist_ok=True)
    _log_to_file(state)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log.info("started, pid %d", os.getpid())
    try:
        SupervisorProcess(state, Unit(state) if arguments.unit else None).run()
    except LockHeldError:
        log.info("another supervisor is running")
    except SystemExit:
        log.info("ended by a signal")
    except Exception:
        log.exception("unexpected error")
        return 1
    else:
        log.info("no run is left")
    return 0


def _log_to_file(state: ClusterState) -> None:
    handler = RotatingFileHandler(state.supervisor_log, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)  # without waiting for threads: a run is continued from its files by the next supervisor
