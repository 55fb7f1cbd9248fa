"""What a right inventory means; wrong ones are in test_broken."""

from __future__ import annotations

import contextlib
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.errors import InventoryError
from orchestrator.inventory import Cluster, Phone, Uplink, dump, load
from orchestrator.inventory.load import INVENTORY_KEYS, NETWORK_KEYS, SSH_KEYS
from orchestrator.inventory.load_phones import PHONE_KEYS
from orchestrator.inventory.load_switches import SWITCH_KEYS, UPLINK_KEYS
from tests.orchestrator.inventory.strategies import clusters

SHIPPED = Path(__file__).parents[3] / "inventory.yaml"
SMALL = """\
cluster: small
network: {subnet: 10.77.0.0/16}
switches:
  sw1:
    ports: 24
    phones:
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    return tmp_path / "inventory.yaml"


def load_text(text: str, path: Path) -> Cluster:
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_shipped_inventory_is_the_papers_cluster() -> None:
    cluster = load(SHIPPED)
    assert len(cluster) == 138
    assert [(switch.name, switch.ports, len(switch.phones)) for switch in cluster.switches] == [
        ("sw1", 48, 46),
        ("sw2", 48, 46),
        ("sw3", 48, 46),
    ]
    assert cluster.phone("p3-46") == Phone("p3-46", "sw3", 46, IPv4Address("10.77.3.46"), 8022)
    assert cluster.subnet == IPv4Network("10.77.0.0/16")
    assert cluster.switches[0].uplink == Uplink(48, "sw2", "1gbit", 47)


def test_examples_in_the_shipped_comments_load(inventory: Path) -> None:
    """A person removes the '#' of the examples at the end: that must give a right inventory."""
    _, marker, examples = SHIPPED.read_text(encoding="utf-8").partition("# A phone that does not fit")
    entries = [line.removeprefix("#") for line in (marker + examples).splitlines() if line.startswith("#     ")]
    cluster = load_text(SMALL + "\n".join(entries).replace("port: 47", "port: 24").replace("1-46", "1-23"), inventory)
    assert len(cluster) == 24
    assert cluster.phone("spare").serial == "R58M123ABCD"
    assert cluster.phone("p3-02").mac == "02:1a:9f:00:3c:02"


def test_defaults(inventory: Path) -> None:
    cluster = load_text(SMALL + "      - {port: 1, name: a, address: 10.77.1.1}", inventory)
    assert (cluster.host, cluster.interface, cluster.rate) == (None, "eth0", "1gbit")
    assert (cluster.ssh_key, cluster.lab) == (None, None)
    assert (cluster.phone("a").ssh_port, cluster.phone("a").user) == (8022, "termux")


def test_templates(inventory: Path) -> None:
    entry = '{ports: "2-3,9", name: "{switch}.{port:03}", address: "10.77.0.{port+100}"}'
    cluster = load_text(f"{SMALL}      - {entry}", inventory)
    assert [(phone.name, str(phone.address)) for phone in cluster] == [
        ("sw1.002", "10.77.0.102"),
        ("sw1.003", "10.77.0.103"),
        ("sw1.009", "10.77.0.109"),
    ]


@pytest.mark.parametrize("name", ["no", "1e3", "0x1", "2026-01-01", "null-1", "1.5"])
def test_names_are_names_whatever_yaml_thinks(inventory: Path, name: str) -> None:
    assert name in load_text(f"{SMALL}      - {{port: 1, name: {name}, address: 10.77.1.1}}", inventory)


def test_mac_needs_no_quotes(inventory: Path) -> None:
    """YAML 1.1 would read this one as a number to base 60."""
    entry = "{port: 1, name: a, address: 10.77.1.1, mac: 10-22-33-44-55-06}"
    assert load_text(f"{SMALL}      - {entry}", inventory).phone("a").mac == "10:22:33:44:55:06"
    assert load_text(f"{SMALL}      - {entry.replace('-', ':')}", inventory).phone("a").mac == "10:22:33:44:55:06"


def test_anchors_save_typing(inventory: Path) -> None:
    text = """
cluster: c
network: {subnet: 10.77.0.0/16}
switches:
  sw1: {ports: 8, phones: &both [{ports: 1-4, name: "{switch}-{port}", address: "10.77.1.{port}"}]}
  sw2: {ports: 8, uplink: {port: 8, to: sw1}, phones: *both}
"""
    with pytest.raises(InventoryError) as caught:
        load_text(text, inventory)
    (problem,) = caught.value.problems  # names differ by {switch}; the addresses do not
    assert problem.message == "address 10.77.1.1 is already used by sw1-1 (line 5) (and 3 more of ports 1-4)"


def test_paths_start_at_the_inventory(tmp_path: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    entry = "      - {port: 1, name: a, address: 10.77.1.1}\n"
    assert load_text(f"{SMALL}{entry}ssh: {{key: keys/id}}\n", inventory).ssh_key == tmp_path / "keys/id"
    assert load_text(f"{SMALL}{entry}ssh: {{key: ~/id}}\n", inventory).ssh_key == Path("/home/someone/id")
    assert load_text(f"{SMALL}{entry}lab: .\n", inventory).lab == tmp_path


@given(cluster=clusters())
def test_dump_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> None:
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    again = load_text(dump(cluster), path)
    assert again == cluster
    assert again.phones == cluster.phones


WORDS = st.sampled_from([*"abc.-{}:~", "{port}", "10.77.1.1", "10.77.0.0/16", "1-8", "sw1", "1gbit", "8", "\x1b", "é"])
KEYS = st.sampled_from(
    [*INVENTORY_KEYS, *NETWORK_KEYS, *SSH_KEYS, *SWITCH_KEYS, *UPLINK_KEYS, *PHONE_KEYS, "sw1", "sw2"],
)
SOUP = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | WORDS, inner, max_size=8),
    max_leaves=40,
)


@given(document=SOUP)
def test_any_yaml_loads_or_is_an_inventory_error(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    path = tmp_path_factory.getbasetemp() / "soup.yaml"
    with contextlib.suppress(InventoryError):
        load_text(yaml.safe_dump(document), path)


@given(data=st.binary(max_size=200) | st.text("a:-[]{}&*!|>'\"%@`#,? \n\t\\\x00\x85\ufeff").map(str.encode))
@example(data=b"[" * 100_000)
@example(data=b"a: b: c")
@example(data=b"%YAML 9.9\n---\n")
@example(data=b"a: &x [*x]")
@example(data=b"\xff\xfea\x00")
def test_any_bytes_are_an_inventory_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(data)
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.problems


@given(st.data())
def test_a_damaged_inventory_is_an_inventory_error_or_loads(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    at = data.draw(st.integers(0, len(text)))
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    with contextlib.suppress(InventoryError):
        load_text(text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 9)) :], path)
