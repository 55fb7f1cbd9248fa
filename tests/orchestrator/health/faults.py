"""Every way a phone breaks, as it is brought about in a lab, and what doctor must say of it."""

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
class Injury:
    check: str
    row: int | None
    phone: str
    settings: tuple[str, ...]  # of `lab set`
    evidence: str  # what doctor's evidence must hold
    heal: tuple[str, ...]
    after: Act = nothing  # once the settings are made
    undo: Act = nothing

    def inflict(self, lab: TestLab) -> None:
        if self.settings:
            apply_settings(lab.directory, self.phone, [*self.settings])
        self.after(lab, self.phone)

    def cure(self, lab: TestLab) -> None:
        self.undo(lab, self.phone)
        if self.heal:
            apply_settings(lab.directory, self.phone, [*self.heal])


@dataclass(frozen=True)
class Verdict:
    injury: Injury
    severity: str = ""
    evidence: str = ""
    remedy: str = ""
    kind: str = ""

    @property
    def right(self) -> bool:
        return bool(self.remedy) and self.injury.evidence in self.evidence

    def __str__(self) -> str:
        row = self.injury.row or "+"
        mark = "yes" if self.right else "NO"
        return (
            f"{row!s:>3} {self.injury.check:<16} {self.injury.phone} {mark:<4} {self.severity:<6} {self.evidence[:110]}"
        )


def verdicts(report: dict[str, Any], injuries: Sequence[Injury]) -> Iterator[Verdict]:
    """What doctor said of each injured phone."""
    for injury in injuries:
        yield next(_matching(report, injury), Verdict(injury))


def _matching(report: dict[str, Any], injury: Injury) -> Iterator[Verdict]:
    for finding in report["findings"]:
        if (finding["check"], finding["row"]) != (injury.check, injury.row):
            continue
        for each in finding["phones"]:
            if each["phone"] == injury.phone:
                yield Verdict(injury, finding["severity"], each["evidence"], finding["remedy"], finding["remedy_kind"])


def trip_penalties(lab: TestLab, phone: str) -> None:
    """What doctor never does: connections that do not log in."""
    lab.on(phone, "bash", "-c", f"mv {DROP_IN} {DROP_IN}.aside")  # which exempts this computer
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
    """More than the 32 that Android 12 allows; then the phone as it is found afterwards."""
    lab.on(phone, "bash", "-c", "for n in {1..40}; do setsid sleep 60 >/dev/null 2>&1 & done; sleep 2", check=False)
    apply_settings(lab.directory, phone, ["phantom=off", "sshd=up"])


def forget_openmpi_settings(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", "mv ~/.openmpi/mca-params.conf ~/.openmpi/aside")


def bring_openmpi_settings_back(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", "mv ~/.openmpi/aside ~/.openmpi/mca-params.conf")


UNGUARDED = """
agent=$(readlink -f ~/.clusterctl/agent/current)/phone_agent
mv $agent/device/telemetry.py $agent/device/aside
printf 'def collect():\\n    return open("/proc/stat").read()\\n' >$agent/device/telemetry.py
"""


def unguarded_agent(lab: TestLab, phone: str) -> None:
    """An agent that reads what Android hides, as psutil does."""
    lab.on(phone, "bash", "-c", UNGUARDED)


def guarded_agent(lab: TestLab, phone: str) -> None:
    lab.on(phone, "bash", "-c", "cd ~/.clusterctl/agent/current/phone_agent/device && mv aside telemetry.py")


def wait_a_moment(lab: TestLab, phone: str) -> None:
    del lab, phone
    time.sleep(2.0)


def _address(lab: TestLab, phone: str) -> str:
    switch, port = phone.removeprefix("p").split("-")
    return f"10.77.{int(switch)}.{int(port)}"


FIRST: tuple[Injury, ...] = (
    Injury("environment", 4, "p1-01", ("environment=bare",), "PATH is /system/bin", ("environment=termux",)),
    Injury("host-key", 15, "p1-02", ("hostkey=shared:p1-01",), "p1-01 has the same host key", ("hostkey=new",)),
    Injury("interfaces", 11, "p1-03", ("cellular=on",), "rmnet_data0 10.200.", ("cellular=off",)),
    Injury("battery-silent", 20, "p1-03", ("battery=hang",), "did not answer in 8 s", ("battery=ok",)),
    Injury("outbound", 12, "p1-04", ("outbound=blocked",), "cannot connect to", ("outbound=ok",)),
    Injury("no-temperature", 21, "p1-04", ("thermal=denied",), "/sys/class/thermal", ("thermal=readable",)),
    Injury("little-cores", 17, "p1-05", ("cpuset=background",), "may use only cores", ("cpuset=foreground",)),
    Injury("throttled", 18, "p1-06", ("throttle=0.33",), "MHz under load", ("throttle=1",)),
    Injury(
        "shared-memory",
        9,
        "p2-01",
        ("sysvipc=sigsys",),
        "MPI_Init was killed",
        ("sysvipc=enosys",),
        after=forget_openmpi_settings,
        undo=bring_openmpi_settings_back,
    ),
    Injury("hard-links", None, "p2-02", ("hardlinks=denied",), "hard links are refused", ("hardlinks=ok",)),
    Injury(
        "power",
        22,
        "p2-02",
        ("battery.status=DISCHARGING", "battery.plugged=PLUGGED_USB"),
        "PLUGGED_USB but DISCHARGING",
        ("battery.status=CHARGING", "battery.plugged=PLUGGED_AC"),
    ),
    Injury("sshd", 2, "p2-03", ("sshd=down",), "connection refused on port 8022", ("sshd=up",)),
    Injury("temporary-files", 10, "p2-04", ("tmpdir=missing",), "TMPDIR", ("tmpdir=ok",)),
    Injury("clock", 25, "p2-04", ("clock=+90",), "s ahead", ("clock=0",)),
    Injury("disk", None, "p2-05", ("disk=full",), "MB of storage free", ("disk=free",)),
    Injury("ethernet", 13, "p2-06", ("interface=usb0",), "no other address nearby", ("interface=eth0",)),
)
SECOND: tuple[Injury, ...] = (
    Injury(
        "penalties",
        1,
        "p1-01",
        ("penalties=on",),
        "sshd temporarily refuses this computer",
        ("penalties=off",),
        after=trip_penalties,
        undo=exempt_again,
    ),
    Injury("boot", 3, "p1-02", ("boot=broken",), "the phone restarted", ("boot=ok", "sshd=up"), after=restart),
    Injury("interpreters", 5, "p1-03", ("preload=missing",), "LD_PRELOAD is empty", ("preload=ok",)),
    Injury("linker", 6, "p1-04", ("linker=broken",), "CANNOT LINK EXECUTABLE", ("linker=ok",)),
    Injury(
        "package-manager",
        7,
        "p1-05",
        ("apt=prompt",),
        "has been waiting at /dev/pts/",
        ("apt=ok",),
        after=wait_a_moment,
    ),
    Injury("versions", 8, "p1-06", ("packages=old",), "openmpi", ("packages=ok",)),
    Injury("sleepy", 19, "p2-01", ("doze=on",), "`sleep 1` took", ("doze=off",)),
    Injury("address", 14, "p2-02", ("address=changed",), "its host key answers at", ("address=ok",)),
    Injury("phantom-killer", 16, "p2-03", ("phantom=on",), "Trimming phantom", (), after=many_processes),
    Injury("opencl", 24, "p2-04", ("opencl=no-platform",), "no platform", ("opencl=ok",)),
    Injury(
        "agent",
        23,
        "p2-05",
        ("proc=masked", "platform=android"),
        "PermissionError",
        ("platform=linux",),
        after=unguarded_agent,
        undo=guarded_agent,
    ),
    Injury("host-key", 15, "p2-06", ("hostkey=new",), "host key changed", ()),
)
