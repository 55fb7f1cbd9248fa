"""The changes that each step plans from facts."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orchestrator.provision.desired_state import Repository, peer_network
from orchestrator.provision.steps import boot, keys, openmpi, sshd
from orchestrator.provision.steps.agent import AgentStep, SelfTestStep, failed_checks, fingerprint
from orchestrator.provision.steps.packages import PackagesStep, space_needed
from orchestrator.provision.steps.wheel import Mpi4pyStep
from orchestrator.provision.termux_facts import FileFact, PackageState
from orchestrator.provision.wheels import Wheel
from tests.orchestrator.provision.samples import ARCH, HOST_KEY, PHONE_KEY, cluster, desired_state, facts, installed

READY = installed(python="3.14.6-1", openmpi="4.1.5-1", libffi="3.5", bash="5.3.15")


class TestPackages:
    def test_a_bare_phone(self) -> None:
        bare = facts(packages=installed(bash="5.3.9"))
        assert PackagesStep().plan(bare, desired_state()) == (
            "install python, openmpi and 1 dependency",
            "upgrade bash",
        )

    def test_a_ready_phone(self) -> None:
        assert PackagesStep().plan(facts(packages=READY), desired_state()) == ()

    def test_newer_packages_are_downgraded(self) -> None:
        ahead = {**READY, **installed(bash="5.4", libffi="3.4")}
        assert PackagesStep().plan(facts(packages=ahead), desired_state()) == ("upgrade libffi", "downgrade bash")
        assert space_needed(facts(packages=ahead), desired_state().repositories[ARCH]) == 2 * (1000 + 4000)

    def test_equivalent_versions_are_equal(self) -> None:
        same = {**READY, **installed(bash="5.3.15-0")}
        assert PackagesStep().plan(facts(packages=same), desired_state()) == ()

    def test_packages_missing_in_the_snapshot_are_ignored(self) -> None:
        more = {**READY, **installed(vim="9.2")}
        assert PackagesStep().plan(facts(packages=more), desired_state()) == ()

    def test_a_removed_package_with_remaining_settings_is_missing(self) -> None:
        removed = {**READY, "openmpi": PackageState("4.1.5-1", "config-files")}
        assert PackagesStep().plan(facts(packages=removed), desired_state()) == ("install openmpi",)

    def test_an_interrupted_installation_is_finished(self) -> None:
        half = {**READY, "bash": PackageState("5.3.15", "half-configured")}
        assert PackagesStep().plan(facts(packages=half), desired_state()) == (
            "finish the interrupted installation of bash",
        )

    def test_space_includes_archives_and_installed_files(self) -> None:
        repository: Repository = desired_state().repositories[ARCH]
        assert space_needed(facts(packages=READY), repository) == 0
        assert space_needed(facts(packages=installed(libffi="3.5", openmpi="4.1.5-1")), repository) == 1000 + 4000


class TestKeys:
    def test_the_phones_key_works_from_the_wired_network_only(self) -> None:
        lines = keys.authorized_lines(f"{HOST_KEY}\n", desired_state())
        assert lines == [f'from="10.77.0.0/16",restrict,command="bash ~/.ssh/clusterctl_gate" {PHONE_KEY}']

    def test_the_key_of_this_computer_is_added_if_missing(self) -> None:
        assert keys.authorized_lines("ssh-ed25519 AAAAother x\n", desired_state())[1:] == [HOST_KEY]

    def test_peers_on_the_loopback_interface(self) -> None:
        assert str(peer_network(cluster("127.77.0.0/16").subnet)) == "127.0.0.0/8"

    def test_ssh_config_lists_the_other_phones(self) -> None:
        lines = keys.config_lines(desired_state())
        assert "Host 10.77.1.1 10.77.1.2" in lines
        assert "  Port 8022" in lines
        assert "  StrictHostKeyChecking yes" in lines

    def test_nothing_changes_if_all_files_match(self) -> None:
        files = keys.required_files(facts(texts={"authorized_keys": f"{HOST_KEY}\n"}), desired_state())
        there = facts(
            texts={"authorized_keys": files[3].content.decode(), "ssh_config": files[4].content.decode()},
            files={file.path: FileFact("600", file.sha256) for file in files},
        )
        assert keys.KeysStep().plan(there, desired_state()) == ()

    def test_a_new_phone_of_the_cluster_changes_known_hosts_only(self) -> None:
        files = keys.required_files(facts(), desired_state())
        outdated = {file.path: FileFact("600", file.sha256) for file in files} | {
            keys.KNOWN_HOSTS: FileFact("600", hashlib.sha256(b"fewer").hexdigest())
        }
        texts = {"authorized_keys": files[3].content.decode(), "ssh_config": files[4].content.decode()}
        assert keys.KeysStep().plan(facts(texts=texts, files=outdated), desired_state()) == ("install known_hosts",)

    def test_bytes_that_are_not_utf8_survive(self) -> None:
        odd = b"# caf\xe9\n".decode("utf-8", "surrogateescape")
        assert b"caf\xe9" in keys.required_files(facts(texts={"authorized_keys": odd}), desired_state())[3].content


class TestSshd:
    @pytest.mark.parametrize(("version", "exempt"), [((9, 2), False), ((9, 8), True), ((10, 5), True), (None, False)])
    def test_penalty_exemptions_are_set_only_for_versions_that_support_them(
        self,
        version: tuple[int, int] | None,
        exempt: bool,  # noqa: FBT001  a test's table
    ) -> None:
        content = sshd.drop_in(facts(ssh_version=version), desired_state()).content
        assert (b"PerSourcePenaltyExemptList 10.77.0.0/16" in content) is exempt

    def test_a_bare_phone(self) -> None:
        assert sshd.SshdStep().plan(facts(), desired_state()) == ("configure sshd: keys only, no forwarding",)

    def test_overridden_settings_are_reported(self) -> None:
        there = {sshd.DROP_IN: FileFact("600", sshd.drop_in(facts(), desired_state()).sha256)}
        assert sshd.SshdStep().plan(facts(files=there, sshd={"passwordauthentication": "no"}), desired_state()) == ()
        overruled = facts(files=there, sshd={"passwordauthentication": "yes"})
        assert sshd.SshdStep().plan(overruled, desired_state()) == (
            "configure sshd: PasswordAuthentication overridden elsewhere",
        )


class TestOpenMpi:
    def test_open_mpi_is_restricted_to_the_wired_network(self) -> None:
        parameters = openmpi.required_files(desired_state())[0].content.decode()
        assert "btl_tcp_if_include = 10.77.0.0/16\n" in parameters
        assert "oob_tcp_if_include = 10.77.0.0/16\n" in parameters
        assert "@" not in parameters


class TestMpi4py:
    python = ("cpython-314", "android-24-arm64_v8a")
    wheel = Wheel(Path("x.whl"), "a" * 64)
    wheels = {"cpython-314-android-24-arm64_v8a-openmpi-4.1.5-1": wheel}  # noqa: RUF012  never changed

    def test_it_is_installed_even_without_python(self) -> None:
        assert Mpi4pyStep().plan(facts(), desired_state()) == ("install mpi4py 4.1.2",)

    def test_a_wheel_of_this_abi_is_not_reinstalled(self) -> None:
        ready = facts(packages=READY, python=self.python, mpi4py=("4.1.2", "a" * 64))
        assert Mpi4pyStep().plan(ready, desired_state(wheels=self.wheels)) == ()

    @pytest.mark.parametrize("there", [("4.1.2", "b" * 64), ("4.1.2", ""), ("4.0.0", "a" * 64), None])
    def test_another_wheel_is_replaced(self, there: tuple[str, str] | None) -> None:
        other = facts(packages=READY, python=self.python, mpi4py=there)
        assert Mpi4pyStep().plan(other, desired_state(wheels=self.wheels)) == ("install mpi4py 4.1.2",)

    def test_another_open_mpi_version_is_another_abi(self) -> None:
        newer = facts(packages={**READY, **installed(openmpi="4.1.6")}, python=self.python)
        assert newer.abi == "cpython-314-android-24-arm64_v8a-openmpi-4.1.6"


class TestAgent:
    def test_missing_outdated_modified_and_current_agents(self) -> None:
        assert AgentStep().plan(facts(), desired_state()) == ("install agent release-one",)
        assert AgentStep().plan(facts(agent=("older", "x")), desired_state()) == ("install agent release-one",)
        repair = AgentStep().plan(facts(agent=("release-one", "x")), desired_state())
        assert repair == ("repair agent release-one: its files were modified",)
        assert AgentStep().plan(facts(agent=("release-one", "tree-one")), desired_state()) == ()


class TestBoot:
    def test_the_wake_lock_is_acquired_once_per_boot(self) -> None:
        script = {boot.BOOT_SCRIPT: FileFact("700", boot.boot_script().sha256)}
        assert boot.BootStep().plan(facts(wake_lock="free"), desired_state()) == (
            "start sshd at boot",
            "acquire the wake lock",
        )
        assert boot.BootStep().plan(facts(wake_lock="held", files=script), desired_state()) == ()
        assert boot.BootStep().plan(facts(wake_lock=None, files=script), desired_state()) == ()


class TestSelfTest:
    def test_it_is_repeated_after_a_change_it_depends_on(self) -> None:
        before = facts(packages=READY)
        tested = facts(packages=READY, texts={"selftest": fingerprint(before, desired_state())})
        assert SelfTestStep().plan(before, desired_state()) == ("run the agent self-test",)
        assert SelfTestStep().plan(tested, desired_state()) == ()
        newer = facts(packages={**READY, **installed(openmpi="4.1.6")}, texts=tested.texts)
        assert SelfTestStep().plan(newer, desired_state()) == ("run the agent self-test",)

    def test_failed_checks_are_listed(self) -> None:
        answer = (
            '{"ok": false, "checks": [{"name": "mpi4py", "ok": false, "detail": "gone"}, {"name": "x", "ok": true}]}'
        )
        assert failed_checks(answer, "") == "mpi4py: gone"
        assert failed_checks("", "No module named phone_agent\n") == "No module named phone_agent"
