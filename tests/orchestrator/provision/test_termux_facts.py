"""Parsing of facts captured from a bare phone and a provisioned one."""

from __future__ import annotations

import pytest

from orchestrator.errors import PhoneError
from orchestrator.provision.fact_parsing import Battery
from orchestrator.provision.termux_facts import parse_termux_facts
from tests.orchestrator.provision.samples import DATA

BARE = (DATA / "facts-bare.txt").read_text()
READY = (DATA / "facts-ready.txt").read_text()


def test_a_bare_phone() -> None:
    facts = parse_termux_facts(BARE)
    assert facts.prefix == "/data/data/com.termux/files/usr"
    assert facts.arch == "x86_64"
    assert facts.version("openssh") == "10.3p1-1"
    assert facts.version("python") is None
    assert facts.sshd["passwordauthentication"] == "yes"
    assert facts.addresses["10.77.1.1"] == "eth0"
    assert (facts.python, facts.mpi4py, facts.agent, facts.abi, facts.battery) == (None, None, None, None, None)
    assert facts.wake_lock == "free"
    assert facts.sshd_pid is not None


def test_a_ready_phone() -> None:
    facts = parse_termux_facts(READY)
    assert facts.version("openssh") == "10.5p1"
    assert facts.ssh_version == (9, 2)
    assert facts.abi == "cpython-311-linux-x86_64-openmpi-4.1.5-1"
    assert facts.mpi4py is not None
    assert (facts.mpi4py[0], len(facts.mpi4py[1])) == ("4.1.2", 64)
    assert facts.agent is not None
    assert facts.battery == Battery(96, "CHARGING", plugged=True, temperature_c=29.4, power_source="PLUGGED_AC")
    assert facts.files["~/.ssh/authorized_keys"].mode == "600"
    assert "clusterctl lab phones" in facts.texts["authorized_keys"]
    assert facts.disk_free_kb is not None


def test_lines_that_are_not_facts_are_ignored() -> None:
    noisy = "Welcome to Termux!\n\nWARNING: linker: unused\tentry\n" + READY.replace("end\t1", "bash: odd\nend\t1")
    assert parse_termux_facts(noisy) == parse_termux_facts(READY)


def test_incomplete_facts_are_refused_with_the_last_line() -> None:
    with pytest.raises(PhoneError, match="CANNOT LINK EXECUTABLE"):
        parse_termux_facts(BARE.partition("package")[0] + 'CANNOT LINK EXECUTABLE "dpkg-query"')
    with pytest.raises(PhoneError, match="nothing was printed"):
        parse_termux_facts("")


def test_an_android_python() -> None:
    android = READY.replace("cpython-311\tlinux-x86_64", "cpython-314\tandroid-24-arm64_v8a")
    assert parse_termux_facts(android).abi == "cpython-314-android-24-arm64_v8a-openmpi-4.1.5-1"


@pytest.mark.parametrize("origin", ["", "{}", "null", "[1]", '{"url": "https://pypi.org/mpi4py.whl"}'])
def test_an_mpi4py_from_elsewhere_has_no_wheel_hash(origin: str) -> None:
    lines = [f"mpi4py\t4.1.2\t{origin}" if line.startswith("mpi4py\t") else line for line in READY.splitlines()]
    assert parse_termux_facts("\n".join(lines)).mpi4py == ("4.1.2", "")


@pytest.mark.parametrize("battery", ["", "!!!", "e30=", "bm8="])
def test_a_battery_without_data_is_unknown(battery: str) -> None:
    lines = [f"text\tbattery\t{battery}" if line.startswith("text\tbattery") else line for line in READY.splitlines()]
    assert parse_termux_facts("\n".join(lines)).battery is None


def test_a_phone_without_working_dpkg_is_refused() -> None:
    with pytest.raises(PhoneError, match="dpkg does not work"):
        parse_termux_facts(READY.replace("arch\tx86_64", "arch\t"))


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("arch\tx86_64", "arch\t../../../etc"),
        ("arch\tx86_64", "arch\tsparc"),
        ("bash\t5.3.15\t", "bash\t\t"),
        ("bash\t5.3.15\t", "bash\t" + "9" * 5000 + "\t"),
        ("bash\t5.3.15\t", "bash\t\N{SUPERSCRIPT TWO}:5\t"),
        ("bash\t5.3.15\t", "bash\t5.3 15\t"),
        ("bash\t5.3.15\tinstalled", "bash\t5.3.15\t\x1b[2J"),
        ("package\tbash", "package\t../bash"),
        ("cpython-311\t", "../cpython\t"),
    ],
)
def test_invalid_values_are_refused(true: str, false: str) -> None:
    assert true in READY
    with pytest.raises(PhoneError) as refused:
        parse_termux_facts(READY.replace(true, false))
    assert refused.value.phase == "facts"
    assert "reinstall Termux" in (refused.value.remedy or "")


def test_stderr_is_quoted_if_there_are_no_facts() -> None:
    with pytest.raises(PhoneError, match="bash: command not found"):
        parse_termux_facts("", "bash: line 1: bash: command not found\n")


def test_a_partly_installed_package_has_no_version() -> None:
    facts = parse_termux_facts(READY.replace("bash\t5.3.15\tinstalled", "bash\t\thalf-installed"))
    assert facts.packages["bash"].version == ""


@pytest.mark.parametrize("number", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", "much"])
def test_malformed_numbers_are_unknown(number: str) -> None:
    lines = [f"disk_kb\t{number}" if line.startswith("disk_kb\t") else line for line in READY.splitlines()]
    assert parse_termux_facts("\n".join(lines)).disk_free_kb is None
