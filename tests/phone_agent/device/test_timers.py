from __future__ import annotations

import subprocess
import sys

DEMOTED = """
import ctypes
from phone_agent.device import timers
ctypes.CDLL(None).prctl(timers.PR_SET_TIMERSLACK, ctypes.c_ulong(40_000_000), 0, 0, 0)  # as Android does
print(timers.be_precise())
"""


def test_a_process_that_android_demoted_wakes_up_in_time_again() -> None:
    done = subprocess.run([sys.executable, "-c", DEMOTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["50000"]
