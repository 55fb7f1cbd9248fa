"""Datasets: tables, JSON, and progress of adding and pushing them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from orchestrator.data.add import MAX_LISTED, Added
from orchestrator.data.push import PushResult
from orchestrator.data.store import StoredDataset
from orchestrator.fleet.result import Outcomes
from orchestrator.format import format_shape
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import count_of, one_line
from orchestrator.view.console import next_step, note, out, warn
from orchestrator.view.outcomes import as_json, print_outcomes
from orchestrator.view.progress import delayed_line
from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.contract.replies import DatasetRemoved
from phone_agent.contract.sizes import format_size


def document(stored: StoredDataset) -> dict[str, Any]:
    manifest = stored.manifest
    return {
        "name": manifest.name,
        "format": manifest.format,
        "samples": manifest.samples,
        "test_samples": manifest.test_samples,
        "shape": list(manifest.shape),
        "classes": list(manifest.class_names),
        "mean": list(manifest.mean),
        "std": list(manifest.std),
        "bytes": manifest.bytes,
        "shards": len(manifest.files),
        "digest": manifest.digest,
        "origin": stored.origin,
        "directory": str(stored.directory),
    }


def print_datasets(found: Sequence[StoredDataset]) -> None:
    if not found:
        note("no datasets yet")
        next_step("clusterctl data add NAME SOURCE", "add one")
        return
    print_table(out, render_datasets(found))


def render_datasets(found: Sequence[StoredDataset]) -> FitTable:
    table = FitTable(
        "name",
        Column("train", right=True),
        Column("test", right=True),
        Column("image size", right=True, priority=2),
        Column("classes", right=True, priority=1),
        Column("disk", right=True, priority=3),
        Column("source", wrap=True, priority=4),
    )
    for stored in found:
        manifest = stored.manifest
        table.add_row(
            manifest.name,
            str(manifest.samples),
            str(manifest.test_samples),
            format_shape(manifest.shape),
            str(len(manifest.class_names)),
            format_size(manifest.bytes),
            f"{manifest.format}: {one_line(str(stored.origin.get('path', '')), 80)}",
        )
    return table


def print_dataset(stored: StoredDataset) -> None:
    manifest = stored.manifest
    names = ", ".join(manifest.class_names[:12]) + (", …" if len(manifest.class_names) > 12 else "")
    damaged = stored.origin.get("damaged")
    lines = {
        "name": manifest.name,
        "source": f"{manifest.format}: {stored.origin.get('path', '')}",
        "images": f"{manifest.samples} for training, {manifest.test_samples} for testing",
        "image size": format_shape(manifest.shape),
        "classes": f"{len(manifest.class_names)}: {names}",
        "mean": ", ".join(f"{value:.4f}" for value in manifest.mean),
        "std": ", ".join(f"{value:.4f}" for value in manifest.std),
        "files": f"{count_of(manifest.files, 'shard')}, {format_size(manifest.bytes)}, in {stored.directory}",
        "skipped": count_of(damaged, "corrupt record") if isinstance(damaged, list) and damaged else "none",
        "digest": manifest.digest,
    }
    for name, value in lines.items():
        out.print(Text(f"{name:<10} {one_line(value, 400)}"))


def print_added(added: Added) -> None:
    manifest = added.stored.manifest
    if not added.fresh:
        note(f"{manifest.name} already exists, made from the same files: nothing to do")
        next_step(f"clusterctl launch --data {manifest.name}")
        return
    for damaged in added.damaged[:MAX_LISTED]:
        warn(f"skipped {one_line(str(damaged))}")
    if len(added.damaged) > MAX_LISTED:
        warn(f"skipped {len(added.damaged)} corrupt records; list them: clusterctl data show {manifest.name} --json")
    test = f" and {manifest.test_samples} test" if manifest.test_samples else ""
    out.print(
        f"{manifest.name}: {manifest.samples} training{test} images ({format_shape(manifest.shape)}), "
        f"{count_of(manifest.class_names, 'class')}, {format_size(manifest.bytes)}",
        soft_wrap=True,
    )
    next_step(f"clusterctl launch --data {manifest.name}")


def pushed_document(done: PushResult) -> dict[str, Any]:
    sizes = {outcome.phone.name: outcome.value for outcome in done.outcomes}
    phones = [{**each, "bytes": sizes[each["phone"]]} for each in as_json(done.outcomes)]
    return {"whole": done.whole, "sent_bytes": done.sent_bytes, "seconds": round(done.seconds, 3), "phones": phones}


def print_pushed(name: str, done: PushResult) -> None:
    what = "all images" if done.whole else "one shard each"
    arrived = [outcome.phone for outcome in done.outcomes if outcome.ok]
    if arrived:
        sent = f"sent {format_size(done.sent_bytes)} in {done.seconds:.1f} s" if done.sent_bytes else "nothing to send"
        note(f"{name}: {what} on {fold(arrived)} ({sent})")
    if arrived and done.outcomes.ok:
        next_step(f"clusterctl launch --data {name}")
    if not done.outcomes.ok:
        print_outcomes(done.outcomes, f"clusterctl data push {name}")


def phones_that_had(outcomes: Outcomes[DatasetRemoved] | None) -> list[Phone]:
    return [phone for phone, answer in outcomes.values() if answer.removed] if outcomes else []


def removed_document(name: str, outcomes: Outcomes[DatasetRemoved] | None, *, here: bool) -> dict[str, Any]:
    """`removed`: the phone had the dataset, and it was deleted."""
    had = {phone.name for phone in phones_that_had(outcomes)}
    phones = [{**each, "removed": each["phone"] in had} for each in as_json(outcomes)] if outcomes else []
    return {"name": name, "removed_here": here, "phones": phones}


def print_removed(name: str, outcomes: Outcomes[DatasetRemoved] | None, *, here: bool, kept: bool) -> None:
    if outcomes is None:
        note(f"deleted {name} on this computer; copies on phones remain")
        next_step(f"clusterctl data remove {name} --from-phones", "delete them as well")
        return
    had = phones_that_had(outcomes)
    places = [*(["on this computer"] if here else []), *([f"on {fold(had)}"] if had else [])]
    if places:
        note(f"deleted {name} {' and '.join(places)}")
    if without := [outcome.phone for outcome in outcomes if outcome.ok and outcome.phone not in had]:
        note(f"{fold(without)} did not have it")
    if kept:
        note("the copy on this computer remains")
        next_step(f"clusterctl data remove {name}", "delete it as well")
    if not outcomes.ok:
        print_outcomes(outcomes, f"clusterctl data remove {name} --from-phones")


@contextmanager
def add_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """The callback takes how many records are done, and how many there are."""
    state = {"done": 0, "total": 0}

    def draw() -> str:
        left = state["total"] - state["done"]
        return f"{name}: {_bar(state['done'], state['total'])} {count_of(left, 'image')} left"

    with delayed_line(draw):
        yield lambda done, total: state.update(done=done, total=total)


@contextmanager
def push_progress(name: str, phones: Sequence[Phone]) -> Iterator[Callable[[int, int, Sequence[Phone]], None]]:
    """The callback takes the bytes sent, the bytes in total, and the phones that are not complete."""
    lock = threading.Lock()
    state: dict[str, Any] = {"sent": 0, "total": 0, "left": phones}

    def draw() -> str:
        with lock:
            sent, total, left = state["sent"], state["total"], state["left"]
        return f"{name}: {_bar(sent, total)} {format_size(max(0, total - sent))} left for {fold(left)}"

    def update(sent: int, total: int, left: Sequence[Phone]) -> None:
        with lock:
            state.update(sent=sent, total=total, left=left)

    with delayed_line(draw):
        yield update


def _bar(done: int, total: int, width: int = 24) -> str:
    filled = width * done // total if total else 0
    return "█" * filled + "░" * (width - filled) + f" {100 * done // total if total else 0:3}%"
