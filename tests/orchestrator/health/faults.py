"""Faults of phones in a lab, and what `doctor` must report of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.lab.network import LabNetwork
from orchestrator.lab.settings import apply_settings, set_power
from tests.labs import TestLab, eventually

DROP_IN = "$PREFIX/etc/ssh/sshd_config.d/50-clusterctl.conf"
Act = Callable[[TestLab, str], None]


def nothing(lab: TestLab, phone: str) -> None:
    del lab, phone


@dataclass(frozen=True)
class Fault:
    check: str
    row: int | None
    phone: str
    settings: tuple[str, ...]  # of `lab set`
    evidence: str  # must be part of the reported evidence
    repair_settings: tuple[str, ...]
    after: Act = nothing  # runs after the settings are applied
    undo: Act = nothing

    def inject(self, lab: TestLab) -> None:
        if self.settings:
            apply_settings(lab.directory, self.phone, [*self.settings])
        self.after(lab, self.phone)

    def repair(self, lab: TestLab) -> None:
        self.undo(lab, self.phone)
        if self.repair_settings:
            apply_settings(lab.directory, self.phone, [*self.repair_settings])


@dataclass(frozen=True)
class Detection:
    fault: Fault
    severity: str = ""
    evidence: str = ""
    remedy: str = ""
    kind: str = ""

    @property
    def correct(self) -> bool:
        return bool(self.remedy) and self.fault.evidence in self.evidence

    def __str__(self) -> str:
        row = self.fault.row or "+"
        mark = "yes" if self.correct else "NO"
        return (
            f"{row!s:>3} {self.fault.check:<16} {self.fault.phone} {mark:<4} {self.severity:<6} {self.evidence[:110]}"
        )


def detections(report: dict[str, Any], faults: Sequence[Fault]) -> Iterator[Detection]:
    """What doctor reported of each fault."""
    for fault in faults:
        yield next(_matching(report, fault), Detection(fault))


def _matching(report: dict[str, Any], fault: Fault) -> Iterator[Detection]:
    for finding in report["findings"]:
        if (finding["check"], finding["row"]) != (fault.check, fault.row):
            continue
        for each in finding["phones"]:
            if each["phone"] == fault.phone:
                yield Detection(fault, finding["severity"], each["evidence"], finding["remedy"], finding["remedy_kind"])


def trip_penalties(lab: TestLab, phone: str) -> None:
    """Open connections that do not log in, until sshd penalizes this computer."""
    lab.on(phone, "bash", "-c", f"mv {DROP_IN} {DROP_IN}.aside")  # it exempts this computer
    apply_settings(lab.directory, phone, ["sshd=down", "sshd=up"])
    network, address = LabNetwork(lab.directory), _address(lab, phone)
    eventually(lambda: _turned_away(network, address))


def _turned_away(network: LabNetwork, address: str) -> bool:
    with suppress(OSError), network.connect(address, 8022, 2.0) as sock:
        sock.settimeout(2.0)
        return sock.recv(64).startswith(b"Not allowed")
    return False


def exempt_again(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", f"mv {DROP_IN}.aside {DROP_IN}")
    apply_settings(lab.directory, phone, ["sshd=down", "sshd=up"])


def restart(lab: TestLab, phone: str) -> None:
    set_power(lab.directory, phone, "off")
    set_power(lab.directory, phone, "on")


def many_processes(lab: TestLab, phone: str) -> None:
    """Start more than the 32 processes that Android 12 allows; then turn the limit off for the examination."""
    lab.on(phone, "bash", "-c", "for n in {1..40}; do setsid sleep 60 >/dev/null 2>&1 & done; sleep 2", check=False)
    apply_settings(lab.directory, phone, ["phantom=off", "sshd=up"])


def forget_openmpi_settings(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", "mv ~/.openmpi/mca-params.conf ~/.openmpi/aside")


def bring_openmpi_settings_back(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", "mv ~/.openmpi/aside ~/.openmpi/mca-params.conf")


BREAK_AGENT = """
agent=$(readlink -f ~/.clusterctl/agent/current)/phone_agent
mv $agent/device/telemetry.py $agent/device/aside
printf 'def collect():\\n    return open("/proc/stat").read()\\n' >$agent/device/telemetry.py
"""


def break_agent(lab: TestLab, phone: str) -> None:
    """Make the agent read a file that Android hides, as psutil does."""
    lab.on(phone, "bash", "-c", BREAK_AGENT)


def repair_agent(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", "cd ~/.clusterctl/agent/current/phone_agent/device && mv aside telemetry.py")


def wait_a_moment(lab: TestLab, phone: str) -> None:
    del lab, phone
    time.sleep(2.0)


def _address(lab: TestLab, phone: str) -> str:
    switch, port = phone.removeprefix("p").split("-")
    return f"10.77.{int(switch)}.{int(port)}"


FIRST: tuple[Fault, ...] = (
    Fault("environment", 4, "p1-01", ("environment=bare",), "PATH is /system/bin", ("environment=termux",)),
    Fault("host-key", 15, "p1-02", ("hostkey=shared:p1-01",), "p1-01 has the same host key", ("hostkey=new",)),
    Fault("interfaces", 11, "p1-03", ("cellular=on",), "rmnet_data0 10.200.", ("cellular=off",)),
    Fault("battery-silent", 20, "p1-03", ("battery=hang",), "did not answer in 8 s", ("battery=ok",)),
    Fault("outbound", 12, "p1-04", ("outbound=blocked",), "cannot connect to", ("outbound=ok",)),
    Fault("no-temperature", 21, "p1-04", ("thermal=denied",), "/sys/class/thermal", ("thermal=readable",)),
    Fault("little-cores", 17, "p1-05", ("cpuset=background",), "may use only cores", ("cpuset=foreground",)),
    Fault("throttled", 18, "p1-06", ("throttle=0.33",), "MHz under load", ("throttle=1",)),
    Fault(
        "shared-memory",
        9,
        "p2-01",
        ("sysvipc=sigsys",),
        "MPI_Init was killed",
        ("sysvipc=enosys",),
        after=forget_openmpi_settings,
        undo=bring_openmpi_settings_back,
    ),
    Fault("hard-links", None, "p2-02", ("hardlinks=denied",), "hard links are refused", ("hardlinks=ok",)),
    Fault(
        "power",
        22,
        "p2-02",
        ("battery.status=DISCHARGING", "battery.plugged=PLUGGED_USB"),
        "PLUGGED_USB but DISCHARGING",
        ("battery.status=CHARGING", "battery.plugged=PLUGGED_AC"),
    ),
    Fault("sshd", 2, "p2-03", ("sshd=down",), "connection refused on port 8022", ("sshd=up",)),
    Fault("temporary-files", 10, "p2-04", ("tmpdir=missing",), "TMPDIR", ("tmpdir=ok",)),
    Fault("clock", 25, "p2-04", ("clock=+90",), "s ahead", ("clock=0",)),
    Fault("disk", None, "p2-05", ("disk=full",), "MB of storage free", ("disk=free",)),
    Fault("ethernet", 13, "p2-06", ("interface=usb0",), "no other address nearby", ("interface=eth0",)),
)
SECOND: tuple[Fault, ...] = (
    Fault(
        "penalties",
        1,
        "p1-01",
        ("penalties=on",),
        "sshd temporarily refuses this computer",
        ("penalties=off",),
        after=trip_penalties,
        undo=exempt_again,
    ),
    Fault("boot", 3, "p1-02", ("boot=broken",), "the phone restarted", ("boot=ok", "sshd=up"), after=restart),
    Fault("interpreters", 5, "p1-03", ("preload=missing",), "LD_PRELOAD is empty", ("preload=ok",)),
    Fault("linker", 6, "p1-04", ("linker=broken",), "CANNOT LINK EXECUTABLE", ("linker=ok",)),
    Fault(
        "package-manager",
        7,
        "p1-05",
        ("apt=prompt",),
        "has been waiting at /dev/pts/",
        ("apt=ok",),
        after=wait_a_moment,
    ),
    Fault("versions", 8, "p1-06", ("packages=old",), "openmpi", ("packages=ok",)),
    Fault("sleepy", 19, "p2-01", ("doze=on",), "`sleep 1` took", ("doze=off",)),
    Fault("address", 14, "p2-02", ("address=changed",), "its host key answers at", ("address=ok",)),
    Fault("phantom-killer", 16, "p2-03", ("phantom=on",), "Trimming phantom", (), after=many_processes),
    Fault("opencl", 24, "p2-04", ("opencl=no-platform",), "no platform", ("opencl=ok",)),
    Fault(
        "agent",
        23,
        "p2-05",
        ("proc=masked", "platform=android"),
        "PermissionError",
        ("platform=linux",),
        after=break_agent,
        undo=repair_agent,
    ),
    Fault("host-key", 15, "p2-06", ("hostkey=new",), "host key changed", ()),
)
