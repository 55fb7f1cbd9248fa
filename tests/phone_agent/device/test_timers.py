from __future__ import annotations

import subprocess
import sys

DEMOTED = """
import ctypes
from phone_agent.device import affinity
ctypes.CDLL(None).prctl(affinity.PR_SET_TIMERSLACK, ctypes.c_ulong(40_000_000), 0, 0, 0)  # as Android does
print(affinity.reduce_timer_slack())
"""


def test_timer_slack_of_a_demoted_process_is_reduced() -> None:
    done = subprocess.run([sys.executable, "-c", DEMOTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["50000"]
