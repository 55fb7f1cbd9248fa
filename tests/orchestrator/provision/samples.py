"""Facts and desired states for tests that need no phone and no network."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from orchestrator.inventory.model import Cluster, Phone, Switch
from orchestrator.provision.bundle import Bundle
from orchestrator.provision.desired_state import DesiredState, Repository
from orchestrator.provision.resources import PackageList
from orchestrator.provision.ssh_keys import SshKeys
from orchestrator.provision.termux.index import Index, Package
from orchestrator.provision.termux_facts import PackageState, TermuxFacts

DATA = Path(__file__).parent / "data"
ARCH = "aarch64"
HOST_KEY = "ssh-ed25519 AAAAhost clusterctl host"
PHONE_KEY = "ssh-ed25519 AAAAphones clusterctl phones"


def facts(**changes: Any) -> TermuxFacts:
    plain = TermuxFacts(epoch=1000.0, prefix="/data/data/com.termux/files/usr", home="/home", arch=ARCH)
    return replace(plain, **changes)


def installed(**versions: str) -> dict[str, PackageState]:
    return {name.replace("_", "-"): PackageState(version, "installed") for name, version in versions.items()}


def phone(port: int = 1) -> Phone:
    return Phone(f"p1-{port:02}", "sw1", port, IPv4Address(f"10.77.1.{port}"))


def cluster(subnet: str = "10.77.0.0/16") -> Cluster:
    switch = Switch("sw1", 8, (phone(1), phone(2)))
    return Cluster("test", IPv4Network(subnet), None, "eth0", "1gbit", (switch,), Path("inventory.yaml"))


def package(name: str, version: str, size: int = 1000, **fields: str) -> Package:
    return Package({"Package": name, "Version": version, "Size": str(size), **fields})


def desired_state(**changes: Any) -> DesiredState:
    index = Index([package("python", "3.14.6-1"), package("openmpi", "4.1.5-1"), package("libffi", "3.5"),
                   package("bash", "5.3.15")])  # fmt: skip
    plain = DesiredState(
        cluster=cluster(),
        packages=PackageList("https://example.org", ("python", "openmpi"), ("clang",), ("clang",)),
        repositories={ARCH: Repository(index, ("libffi", "openmpi", "python"), "5" * 64)},
        keys=SshKeys(HOST_KEY, b"private", PHONE_KEY, "[10.77.1.1]:8022 ssh-ed25519 AAAAone\n"),
        bundles={ARCH: Bundle("release-one", Path("bundle"), "tree-one", 3)},
        mpi4py_version="4.1.2",
    )
    return replace(plain, **changes)
