"""An agent that answers every command with nonsense, for the fault `hostile head`. It runs on the phone, in place of
`phone_agent/__main__.py`; nothing on the host imports it.

Its answers are what once crashed, blocked or deceived the host: wrong types, numbers without bounds, escape sequences,
a stream that never ends.
"""

import json
import random
import sys
import time

HUGE, ESCAPE = 1.7e308, "\x1b]0;hostile\x07\x1b[2J"
CHECKPOINT = {"file": "checkpoint-99999999.safetensors", "bytes": 1 << 36, "sha256": "0" * 64}
REPLIES: tuple[object, ...] = (
    {"damaged": 1},
    {"newest": "x", "damaged": []},
    {"newest": CHECKPOINT, "damaged": [ESCAPE]},
    {"held_steps": [[0, 99999999], [HUGE, "x"]], "ranks": [1], "disk_mb": HUGE, "killed_by": ESCAPE},
    {"id": ESCAPE, "state": ESCAPE, "step": HUGE},
    [[]] * 1000,
    ESCAPE,
    None,
)
EVENTS: tuple[object, ...] = (  # none of them is valid
    {"event": "step", "step": "x", "loss": [], "hottest": {"phone": ESCAPE, "temperature_c": HUGE}},
    {"event": "comm_plan", "algorithm": "ring", "wire": "fp32", "group": ESCAPE},
    {"event": "checkpoint", **CHECKPOINT, "bytes": 1 << 40},
    {"event": "incident", "message": ESCAPE},
    {"event": "warning", "message": [ESCAPE]},
    {"event": "rebalance", "batches": [HUGE, -1]},
    {"event": ["end"], "state": "done"},
    ESCAPE,
)


def main() -> None:
    if sys.argv[1:2] == ["follow"]:
        while True:
            sys.stdout.write(json.dumps(random.choice(EVENTS)) + "\n")  # noqa: S311
            sys.stdout.flush()
            time.sleep(0.2)
    sys.stderr.write(ESCAPE + "\n")
    sys.stdout.write(json.dumps(random.choice(REPLIES)) + "\n")  # noqa: S311


if __name__ == "__main__":
    main()
