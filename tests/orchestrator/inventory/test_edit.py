"""What is identity of a phone goes into a file that a person wrote, and leaves all else in it alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import ClusterctlError
from orchestrator.inventory import Cluster, dump, load
from orchestrator.inventory.edit import PhoneIdentity, record_identity
from tests.orchestrator.inventory.strategies import clusters, host_key
from tests.orchestrator.inventory.test_load import SHIPPED

MAC = "02:1a:9f:00:3c:07"
KEY = host_key(9, 9)
HEAD = "cluster: c\nnetwork: {subnet: 10.77.0.0/16}\nswitches:\n"

IN_LINES = """\
  sw1:
    ports: 48
    phones:
      - port: 7
        name: spare
        address: 10.77.1.7
"""
SERIAL_LINE = "        serial: R58M7\n"

# The serial number R58M7 of sw1:7 became known.
EDITS = {
    "a range in braces is opened": (
        """\
  sw1:
    ports: 48  # sic
    phones:
      - {ports: 1-46, name: "p1-{port:02}", address: "10.77.1.{port}"}  # the left rack
      # not in use yet
  sw2: {ports: 8, uplink: {port: 8, to: sw1}}
""",
        """\
  sw1:
    ports: 48  # sic
    phones:
      - ports: 1-46  # the left rack
        name: "p1-{port:02}"
        address: "10.77.1.{port}"
        serials:
          7: R58M7
      # not in use yet
  sw2: {ports: 8, uplink: {port: 8, to: sw1}}
""",
    ),
    "a range in lines gets a mapping": (
        """\
  sw1:
    ports: 48
    phones:
      - name: "p{port}"    # names

        # and addresses
        address: "10.77.1.{port}"
        ports: 7-9
""",
        """\
  sw1:
    ports: 48
    phones:
      - name: "p{port}"    # names

        # and addresses
        address: "10.77.1.{port}"
        ports: 7-9
        serials:
          7: R58M7
""",
    ),
    "numbers stay in order": (
        """\
  sw1:
    ports: 48
    phones:
      - ports: 1-9
        serials:  # printed on the back
          2: R58M2  # cracked
          # from here on: new ones
          9: R58M9
        name: "p{port}"
        address: "10.77.1.{port}"
""",
        """\
  sw1:
    ports: 48
    phones:
      - ports: 1-9
        serials:  # printed on the back
          2: R58M2  # cracked
          7: R58M7
          # from here on: new ones
          9: R58M9
        name: "p{port}"
        address: "10.77.1.{port}"
""",
    ),
    "the first number": (
        """\
  sw1:
    ports: 48
    phones:
      - ports: 1-9
        serials:
          9: R58M9
        name: "p{port}"
        address: "10.77.1.{port}"
""",
        """\
  sw1:
    ports: 48
    phones:
      - ports: 1-9
        serials:
          7: R58M7
          9: R58M9
        name: "p{port}"
        address: "10.77.1.{port}"
""",
    ),
    "numbers in braces": (
        """\
  sw1:
    ports: 48
    phones:
      - {ports: 1-9, name: "p{port}", serials: {2: R58M2, 9: R58M9}, address: "10.77.1.{port}"}
""",
        """\
  sw1:
    ports: 48
    phones:
      - {ports: 1-9, name: "p{port}", serials: {2: R58M2, 7: R58M7, 9: R58M9}, address: "10.77.1.{port}"}
""",
    ),
    "one phone in braces": (
        """\
  sw1:
    ports: 48
    phones:
      - {port: 7, name: spare, address: 10.77.1.7}  # spare
""",
        """\
  sw1:
    ports: 48
    phones:
      - {port: 7, name: spare, address: 10.77.1.7, serial: R58M7}  # spare
""",
    ),
    "one phone in lines": (IN_LINES, IN_LINES + SERIAL_LINE),
    "a file without its last line break": (IN_LINES.removesuffix("\n"), IN_LINES + SERIAL_LINE),
    "another serial number than before": (
        '  sw1: {ports: 48, phones: [{port: 7, serial: "OLD", name: a, address: 10.77.1.7}]}  # été\n',
        "  sw1: {ports: 48, phones: [{port: 7, serial: R58M7, name: a, address: 10.77.1.7}]}  # été\n",
    ),
    "a range within brackets": (
        '  sw1: {ports: 48, phones: [{ports: 7-8, name: "p{port}", address: "10.77.1.{port}"}]}\n',
        '  sw1: {ports: 48, phones: [{ports: 7-8, name: "p{port}", address: "10.77.1.{port}", serials: {7: R58M7}}]}\n',
    ),
    "lines of Windows": (
        IN_LINES.replace("\n", "\r\n"),
        (IN_LINES + SERIAL_LINE).replace("\n", "\r\n"),
    ),
}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    return tmp_path / "inventory.yaml"


def learn(path: Path, identity: PhoneIdentity, where: str = "sw1:7") -> bool:
    phone = next(phone for phone in load(path) if phone.where == where)
    return record_identity(path, phone, identity)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
@pytest.mark.parametrize(("before", "after"), EDITS.values(), ids=EDITS.keys())
def test_one_thing_is_written_and_all_else_stays(inventory: Path, before: str, after: str, mark: str) -> None:
    inventory.write_bytes((mark + HEAD + before).encode())
    assert learn(inventory, PhoneIdentity(serial="R58M7"))
    assert inventory.read_bytes().decode() == mark + HEAD + after
    assert not learn(inventory, PhoneIdentity(serial="R58M7"))


def test_all_that_can_be_learned(inventory: Path) -> None:
    inventory.write_text(SHIPPED.read_text())
    inventory.chmod(0o640)
    assert learn(inventory, PhoneIdentity("R58M7", MAC, KEY), "sw2:7")
    assert learn(inventory, PhoneIdentity("R58M3", None, None), "sw2:3")
    phone = load(inventory).phone("p2-07")
    assert (phone.serial, phone.mac, phone.host_key) == ("R58M7", MAC, KEY)
    assert inventory.stat().st_mode & 0o777 == 0o640
    comments = [line.partition("#")[2] for line in SHIPPED.read_text().splitlines() if "#" in line]
    assert [line.partition("#")[2] for line in inventory.read_text().splitlines() if "#" in line] == comments


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - a file system of its own
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this computer has no second file system to write to")
    with TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


def test_a_link_to_another_file_system_stays_a_link(inventory: Path, other_file_system: Path) -> None:
    """Relative paths are relative to the link: the key lies beside it."""
    (inventory.parent / "id").touch()
    real = other_file_system / "rack.yaml"
    real.write_text(HEAD.replace("switches:", "ssh: {key: id}\nswitches:") + IN_LINES)
    inventory.symlink_to(real)
    assert learn(inventory, PhoneIdentity(serial="R58M7"))
    assert inventory.is_symlink()
    assert load(inventory).phone("spare").serial == "R58M7"
    assert [path.name for path in other_file_system.iterdir()] == ["rack.yaml"]


@settings(max_examples=25)
@given(cluster=clusters(), data=st.data())
def test_any_phone_of_any_cluster(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "edited.yaml"
    path.write_text(dump(cluster))
    phone = data.draw(st.sampled_from(cluster.phones))
    record_identity(path, phone, PhoneIdentity("NEW:1", MAC, KEY))
    expected = replace(phone, serial="NEW:1", mac=MAC, host_key=KEY)
    assert list(load(path)) == [expected if one == phone else one for one in cluster]


def test_phones_that_finish_together_lose_nothing_of_each_other(inventory: Path) -> None:
    inventory.write_text(SHIPPED.read_text())
    phones = load(inventory).phones[:12]
    threads = [
        threading.Thread(target=record_identity, args=(inventory, phone, PhoneIdentity(f"R58M{number}")))
        for number, phone in enumerate(phones)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [phone.serial for phone in load(inventory).phones[:12]] == [f"R58M{number}" for number in range(12)]


def test_a_serial_of_another_phone_is_refused_and_the_way_out_told(inventory: Path) -> None:
    text = HEAD + (
        "  sw1:\n    ports: 8\n    phones:\n      - {port: 7, name: a, address: 10.77.1.7}\n"
        "      - {port: 8, name: b, address: 10.77.1.8, serial: R58M7}\n"
    )
    inventory.write_text(text)
    with pytest.raises(ClusterctlError, match="serial number R58M7 is already used") as caught:
        learn(inventory, PhoneIdentity(serial="R58M7"))
    assert caught.value.remedy == "add to the inventory entry for sw1:7: serial: R58M7"
    assert inventory.read_text() == text
