"""A virtual phone behaves as the orchestrator expects of a real one."""

from __future__ import annotations

import json
import socket
import subprocess
import textwrap

import pytest

from orchestrator.fleet import Fleet
from orchestrator.inventory import load
from orchestrator.lab.network import LabNetwork
from orchestrator.lab.spec import Mode
from orchestrator.paths import ClusterState
from tests.labs import TestLab, eventually

pytestmark = pytest.mark.lab

PREFIX = "/data/data/com.termux/files/usr"


def test_every_phone_accepts_the_cluster_key(any_lab: TestLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(any_lab.state))
    cluster = load(any_lab.inventory)
    with Fleet(cluster.phones, ClusterState("lab"), LabNetwork(any_lab.directory), trust_new=True) as fleet:
        outcomes = fleet.map(lambda connection: connection.run(["printenv", "HOME"], check=True).stdout.strip())
    assert outcomes.ok
    homes = [home for _, home in outcomes.values()]
    assert all(home.endswith("/data/data/com.termux/files/home") for home in homes)
    keys = ClusterState("lab").known_hosts.read_text().split("\n")
    assert len({line.split()[2] for line in keys if line}) == len(cluster)  # every phone has its own host key


def test_commands_have_the_environment_of_the_termux_app(any_lab: TestLab) -> None:
    lines = any_lab.on("p1-01", "env").stdout.splitlines()
    environment = dict(line.split("=", 1) for line in lines)
    prefix = environment["PREFIX"]
    assert prefix.endswith(PREFIX)
    assert environment["PATH"] == f"{prefix}/bin"
    assert environment["TMPDIR"] == f"{prefix}/tmp"  # noqa: S108
    assert "LD_LIBRARY_PATH" not in environment
    assert not {"USER", "CLUSTERCTL_STATE", "SSH_AUTH_SOCK"} & set(environment)  # nothing leaks from the host


def test_exec_passes_stdin_output_and_exit_code(any_lab: TestLab) -> None:
    script = "read line; echo got $line; echo bad >&2; exit 7"
    command = ["lab", "exec", "p2-01", "--", "bash", "-c", script]
    done = any_lab.clusterctl(*command, check=False, stdin="some input\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "got some input\n", "bad\n")
    assert any_lab.on("p2-01", "no-such-program", check=False).returncode == 127
    assert any_lab.on("p2-01", "bash", "-c", "kill -9 $$", check=False).returncode == 137


def test_a_command_ends_when_its_caller_exits(any_lab: TestLab) -> None:
    with any_lab.started("lab", "exec", "p1-02", "--", "bash", "-c", "echo started; sleep 4242") as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "started\n"
    eventually(lambda: any_lab.on("p1-02", "pgrep", "-f", "^sleep 4242", check=False).returncode == 1)


def test_sshd_can_be_stopped_and_started(any_lab: TestLab) -> None:
    any_lab.clusterctl("lab", "set", "p1-02", "sshd=down")
    eventually(lambda: not any_lab.phone("p1-02")["sshd"])
    any_lab.clusterctl("lab", "set", "p1-02", "sshd=up")
    eventually(lambda: bool(any_lab.phone("p1-02")["sshd"]))


def test_status_reports_mode_addresses_and_state(any_lab: TestLab) -> None:
    report = json.loads(any_lab.clusterctl("lab", "status", "--json").stdout)
    assert report["mode"] == any_lab.mode
    assert [phone["name"] for phone in report["phones"]] == ["p1-01", "p1-02", "p2-01"]
    assert all(phone["up"] and phone["sshd"] for phone in report["phones"])
    shown = any_lab.clusterctl("lab", "status").stdout
    assert all(phone["address"] in shown for phone in report["phones"])


def test_sockets_are_created_in_the_lab_network(any_lab: TestLab) -> None:
    network = LabNetwork(any_lab.directory)
    address = str(load(any_lab.inventory).phones[0].address)
    here = network.source_address(address)
    with network.listen(here, 0) as server:
        port = server.getsockname()[1]
        code = f"exec 3<>/dev/tcp/{here}/{port}; echo hello >&3"
        any_lab.on("p1-01", "bash", "-c", code)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(100) == b"hello\n"
    with network.connect(address, 8022, 5) as channel:
        assert channel.recv(4) == b"SSH-"


def test_a_refused_connection_is_an_os_error(any_lab: TestLab) -> None:
    network = LabNetwork(any_lab.directory)
    with pytest.raises(ConnectionRefusedError):
        network.connect(str(load(any_lab.inventory).phones[0].address), 9, 5)


def test_enter_runs_on_the_host_side_of_the_lab_network(namespaced_lab: TestLab) -> None:
    shown = namespaced_lab.clusterctl("lab", "enter", "--", "ip", "-o", "addr").stdout
    assert "10.77.0.1/16" in shown
    assert namespaced_lab.clusterctl("lab", "enter", "--", "sh", "-c", "exit 5", check=False).returncode == 5


def test_the_lab_network_is_invisible_outside_the_lab(namespaced_lab: TestLab) -> None:
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert "sw1" not in links
    assert "port1-1" not in links


def test_a_phone_has_only_the_files_of_android(namespaced_lab: TestLab) -> None:
    checks = """
        uname -n
        for path in /bin /sbin /tmp /usr/bin/env /home /root /etc/shadow; do [ -e $path ] && echo "has $path"; done
        for path in / /usr /etc /system /dev/shm; do touch $path/x 2>/dev/null && echo "writes $path"; done
        for file in stat uptime loadavg vmstat; do cat /proc/$file >/dev/null 2>&1 && echo "reads /proc/$file"; done
        [ -w ~ ] && [ -r /sys/class/thermal/thermal_zone0/temp ] && [ -x /system/bin/sh ] && echo fine
    """
    assert namespaced_lab.on("p1-01", "bash", "-c", checks).stdout.split("\n") == ["localhost", "fine", ""]


def test_a_phone_runs_as_its_own_app_user(namespaced_lab: TestLab) -> None:
    users = [namespaced_lab.on(name, "id", "-u").stdout.strip() for name in ("p1-01", "p1-02", "p2-01")]
    assert users == ["10100", "10101", "10102"]
    status = namespaced_lab.on("p1-01", "cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert fields["NoNewPrivs"] == "1"
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0


def test_phones_do_not_see_each_other_or_the_host(namespaced_lab: TestLab) -> None:
    assert namespaced_lab.on("p1-01", "pgrep", "-c", "-x", "sshd").stdout.strip() == "1"
    namespaced_lab.on("p1-01", "bash", "-c", "echo secret > ~/mine")
    assert namespaced_lab.on("p1-02", "ls").stdout == ""
    assert list(namespaced_lab.directory.glob("phones/p1-01/data/*")) == []
    namespaced_lab.on("p1-01", "rm", "mine")


def test_links_are_shaped_in_both_directions(namespaced_lab: TestLab) -> None:
    switches = namespaced_lab.clusterctl("lab", "enter", "--", "tc", "qdisc").stdout
    shaped = {line.split()[4] for line in switches.splitlines() if " tbf " in line and "rate 1Gbit" in line}
    assert shaped == {"port1-1", "port1-2", "port2-1", "up1", "down2", "host0", "port-host"}
    inside = namespaced_lab.on("p1-01", "/apex/host/sbin/tc", "qdisc", "show", "dev", "eth0").stdout
    assert "tbf" in inside
    assert "rate 1Gbit" in inside


def test_phones_use_the_congestion_control_of_real_phones(namespaced_lab: TestLab) -> None:
    shown = json.loads(namespaced_lab.on("p2-01", "/apex/host/bin/ip", "-json", "-details", "route").stdout)
    (wired,) = (route for route in shown if route["dst"] == "10.77.0.0/16")
    assert wired["prefsrc"] == "10.77.2.1"
    assert [metrics.get("congestion") for metrics in wired["metrics"]] in (["bic"], ["cubic"], ["reno"])


def test_the_wired_interface_is_the_only_one(namespaced_lab: TestLab) -> None:
    shown = json.loads(namespaced_lab.on("p2-01", "/apex/host/bin/ip", "-json", "-4", "addr").stdout)
    addresses = {link["ifname"]: [entry["local"] for entry in link["addr_info"]] for link in shown}
    assert addresses == {"lo": ["127.0.0.1"], "eth0": ["10.77.2.1"]}


def test_loopback_phones_have_separate_addresses(loopback_lab: TestLab) -> None:
    cluster = load(loopback_lab.inventory)
    assert [str(phone.address).split(".", 2)[2] for phone in cluster] == ["1.1", "1.2", "2.1"]
    assert all(phone.address.is_loopback for phone in cluster)
    for phone in cluster:
        with socket.create_connection((str(phone.address), 8022), timeout=5) as channel:
            assert channel.recv(4) == b"SSH-"


def test_system_calls_fail_as_on_android(any_lab: TestLab) -> None:
    code = """
        import ctypes, errno, os
        open("mine", "w").close()
        os.chown("mine", os.getuid(), -1)
        os.chown("mine", -1, -1)
        for uid, gid in ((0, -1), (-1, 0), (0, 0)):
            for change in (os.chown, os.lchown):
                try:
                    change("mine", uid, gid)
                except PermissionError:
                    print("denied")
        os.unlink("mine")
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.shmget(0, 4096, 0o1600), errno.errorcode[ctypes.get_errno()])
    """
    python = "/usr/bin/python3" if any_lab.mode is Mode.LOOPBACK else "/apex/host/bin/python3"
    shown = any_lab.on("p1-01", python, "-c", textwrap.dedent(code)).stdout
    assert shown.splitlines() == [*["denied"] * 6, "-1 ENOSYS"]
