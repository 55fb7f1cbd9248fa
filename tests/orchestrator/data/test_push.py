"""What a push makes of the phones' answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.data.add import add
from orchestrator.data.push import SPARE_BYTES, CorruptShardError, Push, required_files, should_replicate
from orchestrator.data.store import Store
from orchestrator.fleet import Fleet
from orchestrator.fleet.result import CommandResult, Outcome, Outcomes, Status
from orchestrator.inventory.model import Phone
from orchestrator.lab.config import LabConfig
from orchestrator.lab.spec import LabSpec, Mode
from phone_agent.contract.dataset_delivery import Hop
from phone_agent.contract.dataset_manifest import DatasetManifest
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import DatasetFiles, DeliveryReply
from phone_agent.contract.sharding import even_spans
from tests.orchestrator.data.samples import cifar10_binary
from tests.phone_agent.datasets import damage, stage
from tests.phone_agent.phones import REPOSITORY


@dataclass(frozen=True)
class Here:
    """Instead of a connection to a phone: its agent runs on this machine, in a home of its own."""

    phone: Phone
    home: Path

    def run(self, argv: Sequence[str], *, stdin: Iterable[bytes] = (), **_: Any) -> CommandResult:
        command, env = [sys.executable, *argv[1:]], {**os.environ, "HOME": str(self.home)}
        done = subprocess.run(command, input=b"".join(stdin), env=env, cwd=REPOSITORY, capture_output=True, check=False)
        return CommandResult(tuple(argv), done.returncode, done.stdout.decode(), done.stderr.decode(), 0.0)


@dataclass(frozen=True)
class OneAfterTheOther:
    """Instead of a fleet."""

    root: Path

    def map(self, task: Callable[[Here], Any], phones: Sequence[Phone]) -> Outcomes[Any]:
        return Outcomes(tuple(self._one(task, phone) for phone in phones))

    def _one(self, task: Callable[[Here], Any], phone: Phone) -> Outcome[Any]:
        (home := self.root / phone.name).mkdir(exist_ok=True)
        try:
            return Outcome(phone, Status.OK, 0.0, value=task(Here(phone, home)))
        except Exception as error:  # noqa: BLE001 - as a fleet has it
            return Outcome(phone, Status.FAILED, 0.0, error=str(error))


def flip_a_bit(path: Path) -> None:
    damage(path, 1000)


def cut_short(path: Path) -> None:
    os.truncate(path, 1000)


def wear_out(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/mem")  # an input/output error for every reader


@pytest.mark.parametrize("spoil", [flip_a_bit, cut_short, wear_out, Path.unlink])
def test_a_shard_that_rotted_on_this_computer_is_not_blamed_on_phones(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    phones = LabSpec(Mode.ROOT, LabConfig(2, 2)).cluster(tmp_path, tmp_path / "inventory.yaml").phones
    stored = add("cifar", cifar10_binary(tmp_path / "cifar"), store=Store(tmp_path / "store")).stored
    fleet = cast("Fleet", OneAfterTheOther(tmp_path))
    rotten = stored.directory / stored.manifest.train[0].name
    before = rotten.read_bytes()
    spoil(rotten)
    with pytest.raises(CorruptShardError) as raised:
        Push(fleet, stored, phones, even_spans(stored.manifest.samples, 2), whole=True).run()
    assert raised.value.phones == tuple(phone.name for phone in phones)
    assert raised.value.message == f"{rotten} is corrupt on this computer; phones reject it"
    assert raised.value.remedy == "clusterctl data remove cifar, then add it again"
    rotten.unlink(missing_ok=True)
    rotten.write_bytes(before)
    assert Push(fleet, stored, phones, even_spans(stored.manifest.samples, 2), whole=True).run().outcomes.ok


def test_what_was_damaged_on_the_way_is_not_blamed_on_this_computer(tmp_path: Path) -> None:
    phones = LabSpec(Mode.ROOT, LabConfig(1)).cluster(tmp_path, tmp_path / "inventory.yaml").phones
    stored = add("cifar", cifar10_binary(tmp_path / "cifar"), store=Store(tmp_path / "store")).stored
    push = Push(cast("Fleet", None), stored, phones, even_spans(stored.manifest.samples, 1))
    name = stored.manifest.train[0].name
    answer = DeliveryReply(phones[0].name, f"{name} arrived damaged", ErrorCode.DATA_DAMAGED, name)
    push._evaluate_replies([Hop(phones[0].name, "", 1, frozenset())], {phones[0].name: answer})
    assert (list(push._failed), push._corrupt) == ([phones[0]], set())


GOOD = DeliveryReply("", None)
CUT = DeliveryReply("", "the transfer was interrupted", ErrorCode.TRANSFER_INTERRUPTED)
FULL = DeliveryReply("", "no space left", ErrorCode.DISK_FULL)


@pytest.mark.parametrize(
    ("answers", "blamed", "traveled"),
    [
        ([GOOD, GOOD, GOOD], [], [0, 1, 2]),
        ([CUT, CUT, CUT], [0], []),
        ([FULL, GOOD, CUT], [0], [1]),
        ([GOOD, None, CUT], [], [0]),
        ([GOOD, CUT, None], [1], [0]),
    ],
)
def test_only_the_first_that_failed_is_blamed(
    tmp_path: Path, answers: list[DeliveryReply | None], blamed: list[int], traveled: list[int]
) -> None:
    phones = LabSpec(Mode.ROOT, LabConfig(3)).cluster(tmp_path, tmp_path / "inventory.yaml").phones
    stored = add("cifar", cifar10_binary(tmp_path / "cifar"), store=Store(tmp_path / "store")).stored
    push = Push(cast("Fleet", None), stored, phones, even_spans(stored.manifest.samples, 3))
    route = [Hop(phone.name, str(phone.address), phone.ssh_port, frozenset()) for phone in phones]
    reported = {phone.name: answer for phone, answer in zip(phones, answers, strict=True) if answer}
    push._evaluate_replies(route, reported)
    assert list(push._failed) == [phones[place] for place in blamed]
    assert list(push._sent_to) == [phones[place] for place in traveled]


NONE, SHARE, MOST, WHOLE = range(4)
ROOMY, TIGHT = 10 * SPARE_BYTES, 1000


def holding(manifest: DatasetManifest, place: int, phones: int, what: int, free_bytes: int) -> DatasetFiles:
    spans = even_spans(manifest.samples, phones)[place]
    names: dict[int, frozenset[str]] = {
        NONE: frozenset(),
        SHARE: required_files(manifest, spans, whole=False),
        MOST: frozenset(file.name for file in manifest.files[:-1]),  # as a push that was cut off leaves it
        WHOLE: required_files(manifest, (), whole=True),
    }
    sums = {file.name: file.sha256 for file in manifest.files if file.name in names[what]}
    return DatasetFiles(manifest.digest, free_bytes, sums)


@pytest.mark.parametrize(
    ("holds", "free_bytes", "whole"),
    [
        ((WHOLE, WHOLE, WHOLE), TIGHT, True),
        ((WHOLE, WHOLE, WHOLE), ROOMY, True),
        ((SHARE, SHARE, SHARE), ROOMY, False),
        ((SHARE, SHARE, SHARE), TIGHT, False),
        ((SHARE, SHARE, NONE), ROOMY, True),
        ((SHARE, SHARE, NONE), TIGHT, False),
        ((MOST, MOST, MOST), ROOMY, True),
        ((WHOLE, WHOLE, SHARE), ROOMY, True),
        ((NONE, NONE, NONE), ROOMY, True),
        ((NONE, NONE, NONE), TIGHT, False),
    ],
)
def test_what_was_pushed_before_is_what_is_taken(
    tmp_path: Path, holds: tuple[int, ...], free_bytes: int, *, whole: bool
) -> None:
    manifest = stage(tmp_path / "dots", train=300, test=50)
    held = [holding(manifest, place, len(holds), what, free_bytes) for place, what in enumerate(holds)]
    assert should_replicate(manifest, held, even_spans(manifest.samples, len(holds))) is whole


def test_files_of_another_dataset_of_that_name_do_not_count(tmp_path: Path) -> None:
    manifest = stage(tmp_path / "dots", train=300, test=50)
    old = DatasetFiles("another", TIGHT, {file.name: "0" * 64 for file in manifest.files})
    assert not should_replicate(manifest, [old], even_spans(manifest.samples, 1))
