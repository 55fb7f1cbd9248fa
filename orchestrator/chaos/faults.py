"""How each fault of the catalog is injected into a phone of the lab, and reverted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.chaos import hostile_agent
from orchestrator.chaos.catalog import CATALOG, Fault, Target
from orchestrator.chaos.testbed import Testbed
from orchestrator.errors import ClusterctlError
from orchestrator.lab import links
from orchestrator.lab.programs import find_program
from phone_agent.contract import layout

SLOW_LINK = "10mbit"
FLAPS, FLAP_S = 5, 0.3
_HEALTHY = ("link=up", "disk=free", "clock=0", "phantom=off", "throttle=1", "sshd=up")
EXTRA_PROCESSES = 40  # together with those of Termux, more than the 32 that Android allows
_NETEM = ("netem", "corrupt", "1%")

# Run by bash on the phone, with arguments
_LIMIT_MEMORY = r"""
size=$(sed -n 's/^VmSize:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$1/status") && [ -n "$size" ] &&
/apex/host/bin/prlimit --pid "$1" --as=$((size * 1024))
"""
_MAKE_HOSTILE = f"""
cd ~/{layout.CURRENT}/phone_agent && cp -n __main__.py __main__.py.good && printf '%s' "$1" >hostile.py &&
mv hostile.py __main__.py &&
pkill -KILL -f 'phone_agent [f]ollow'; true
"""
_RESTORE_AGENT = f"cd ~/{layout.CURRENT}/phone_agent && ! [ -e __main__.py.good ] || mv __main__.py.good __main__.py"
_START_PROCESSES = 'for each in $(seq "$1"); do sleep 60 >/dev/null 2>&1 & done'
_KILL_PROCESSES = "pkill -KILL -x sleep; true"

Revert = Callable[[], None]  # undoes an injected fault


@dataclass(frozen=True)
class TargetPhone:
    testbed: Testbed
    phone: str
    run_id: str
    attempt: int

    def rank_pid(self) -> str:
        """The process id of its rank."""
        log = layout.attempt_dir(self.run_id, self.attempt) / layout.RANK_EVENTS_FILE
        pid = self.testbed.run_on_phone(self.phone, "sed", "-n", r's/.*"pid": \([0-9]*\).*/\1/p;1q', str(log)).strip()
        if not pid:
            raise ClusterctlError(f"no rank of {self.run_id} runs on {self.phone}")
        return pid

    def signal(self, name: str) -> None:
        self.testbed.run_on_phone(self.phone, "bash", "-c", 'kill "-$1" "$2"', "bash", name, self.rank_pid())


def supported_faults(testbed: Testbed) -> tuple[Fault, ...]:
    """The faults of the catalog that the kernel of this computer can produce."""
    return tuple(fault for fault in CATALOG if fault.name != "corruption" or _has_netem(testbed))


def _has_netem(testbed: Testbed) -> bool:
    try:
        _tc(testbed, "qdisc", "add", "dev", "lo", "root", *_NETEM)
    except ClusterctlError:
        return False
    _tc(testbed, "qdisc", "delete", "dev", "lo", "root")
    return True


def inject(fault: Fault, target: TargetPhone) -> Revert:
    """Inject the fault, and return how to revert it. Only faults of a single phone."""
    if fault.target in {Target.HOST, Target.RUN}:
        raise ValueError(fault.name)
    return _INJECTORS[fault.name](target)


def revert_all(testbed: Testbed) -> None:
    """Bring every phone of the lab back to a healthy state, whatever was injected."""
    for phone in testbed.spec.phones:
        with suppress(ClusterctlError):
            testbed.power(phone.name, "on")
        for assignment in _HEALTHY:
            with suppress(ClusterctlError):
                testbed.set(phone.name, assignment)
        with suppress(ClusterctlError):
            target = TargetPhone(testbed, phone.name, "", 0)
            _restore_agent(target)
            restore_rate(target)


def _kill(target: TargetPhone) -> Revert:
    target.signal("KILL")
    return nothing


def _freeze(target: TargetPhone) -> Revert:
    target.signal("STOP")
    return nothing  # the recovery of the run ends the process


def _power_off(target: TargetPhone) -> Revert:
    target.testbed.power(target.phone, "off")
    return lambda: target.testbed.power(target.phone, "on")


def _flap(target: TargetPhone) -> Revert:
    for _ in range(FLAPS):
        target.testbed.set(target.phone, "link=down")
        time.sleep(FLAP_S)
        target.testbed.set(target.phone, "link=up")
        time.sleep(FLAP_S)
    return nothing


def limit_rate(target: TargetPhone, rate: str) -> None:
    """Of the link to the phone."""
    _reshape(target, links.shaping_command(_cable(target), rate))


def restore_rate(target: TargetPhone) -> None:
    limit_rate(target, target.testbed.spec.config.rate)


def _slow_link(target: TargetPhone) -> Revert:
    limit_rate(target, SLOW_LINK)
    return lambda: restore_rate(target)


def _corrupt(target: TargetPhone) -> Revert:
    _reshape(target, f"qdisc add dev {_cable(target)} root {' '.join(_NETEM)}")
    return lambda: restore_rate(target)


def _limit_memory(target: TargetPhone) -> Revert:
    target.testbed.run_on_phone(target.phone, "bash", "-c", _LIMIT_MEMORY, "bash", target.rank_pid())
    return nothing  # the limit ends with the process


def _reap(target: TargetPhone) -> Revert:
    target.testbed.run_on_phone(target.phone, "bash", "-c", _START_PROCESSES, "bash", str(EXTRA_PROCESSES))
    target.testbed.set(target.phone, "phantom=on")

    def revert() -> None:
        target.testbed.set(target.phone, "phantom=off")
        target.testbed.run_on_phone(target.phone, "bash", "-c", _KILL_PROCESSES)
        target.testbed.set(target.phone, "sshd=up")

    return revert


def _make_hostile(target: TargetPhone) -> Revert:
    """Another agent takes the place of the real one; the process that the supervisor follows ends."""
    agent = Path(hostile_agent.__file__).read_text(encoding="utf-8")
    target.testbed.run_on_phone(target.phone, "bash", "-c", _MAKE_HOSTILE, "bash", agent)
    return lambda: _restore_agent(target)


def _restore_agent(target: TargetPhone) -> None:
    target.testbed.run_on_phone(target.phone, "bash", "-c", _RESTORE_AGENT)


def _setting(faulty: str, healthy: str) -> Callable[[TargetPhone], Revert]:
    def injector(target: TargetPhone) -> Revert:
        target.testbed.set(target.phone, faulty)
        return lambda: target.testbed.set(target.phone, healthy)

    return injector


def nothing() -> None:
    """There is nothing to revert."""


_INJECTORS: dict[str, Callable[[TargetPhone], Revert]] = {
    "rank killed": _kill,
    "rank frozen": _freeze,
    "power off": _power_off,
    "head dies": _power_off,
    "hostile head": _make_hostile,
    "cable out": _setting("link=down", "link=up"),
    "cable flapping": _flap,
    "slow link": _slow_link,
    "corruption": _corrupt,
    "sshd killed": _setting("sshd=down", "sshd=up"),
    "disk full": _setting("disk=full", "disk=free"),
    "memory limit": _limit_memory,
    "clock jump": _setting("clock=+90", "clock=0"),
    "phantom reaper": _reap,
    "throttling": _setting("throttle=0.33", "throttle=1"),
}


def _cable(target: TargetPhone) -> str:
    """The end of its cable at the switch, where traffic to the phone is shaped."""
    return target.testbed.spec.phone(target.phone).switch_interface


def _reshape(target: TargetPhone, line: str) -> None:
    _tc(target.testbed, *line.replace("qdisc add", "qdisc replace").split())


def _tc(testbed: Testbed, *words: str) -> None:
    testbed.run_in_lab(find_program("tc") or "tc", *words)
