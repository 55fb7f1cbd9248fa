from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory import dump, load
from orchestrator.lab.config import LabConfig
from orchestrator.lab.spec import LabSpec, Mode
from tests.labs import TestLab


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    "config", [LabConfig(1), LabConfig(4, 2), LabConfig(138, 3), LabConfig(60, 1, uplink="100mbit")]
)
def test_the_inventory_round_trips(tmp_path: Path, mode: Mode, config: LabConfig) -> None:
    path = tmp_path / "inventory.yaml"
    cluster = LabSpec(mode, config).cluster(tmp_path, path)
    path.write_text(dump(cluster))
    assert load(path) == cluster


def test_names_and_addresses_contain_the_port() -> None:
    spec = LabSpec(Mode.ROOT, LabConfig(138, 3))
    phone = spec.phones[-1]
    assert (phone.name, phone.address, phone.mac) == ("p3-46", "10.77.3.46", "02:77:00:00:03:2e")
    assert LabSpec(Mode.LOOPBACK, LabConfig(4, 2)).phones[-1].address == "127.77.2.2"
    assert spec.host_address == "10.77.0.1"


def test_names_addresses_and_uids_are_unique() -> None:
    phones = LabSpec(Mode.ROOT, LabConfig(3200, 16)).phones
    for values in (
        [p.name for p in phones],
        [p.address for p in phones],
        [p.mac for p in phones],
        [p.uid for p in phones],
    ):
        assert len(set(values)) == len(phones)
    assert max(len(phone.switch_interface) for phone in phones) <= 15  # the kernel's limit for an interface name


def test_addresses_are_in_the_subnet_passed_to_mpi() -> None:
    for mode in Mode:
        spec = LabSpec(mode, LabConfig(3200, 16))
        assert all(IPv4Address(phone.address) in mode.network for phone in spec.phones)
        assert IPv4Address(spec.host_address) in mode.network


def test_the_spec_round_trips() -> None:
    spec = LabSpec(Mode.USER, LabConfig(5, 2, "100mbit", "1gbit", "512m"))
    assert LabSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    "text", ["", "{}", '{"mode": "magic", "config": {"phones": 4}}', '{"mode": "root", "config": {"x": 1}}']
)
def test_a_spec_of_another_version_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="another version"):
        LabSpec.from_json(text)


def test_an_unknown_phone_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="p9-01"):
        LabSpec(Mode.ROOT, LabConfig(4)).phone("p9-01")


def test_test_labs_ignore_the_inventory_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERCTL_INVENTORY", "/the/rack.yaml")
    assert "CLUSTERCTL_INVENTORY" not in TestLab(tmp_path).environment
