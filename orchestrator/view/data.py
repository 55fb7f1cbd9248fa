"""Datasets, and what is left to do with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.data.add import NAMED, Added
from orchestrator.data.push import Pushed
from orchestrator.data.store import Stored
from orchestrator.fleet.result import Outcomes
from orchestrator.inventory import fold
from orchestrator.inventory.model import Phone
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err, next_step, note, out, warn
from orchestrator.view.outcomes import as_json, print_outcomes
from phone_agent.contract.sizes import readable

_DELAY_S = 0.8


def document(stored: Stored) -> dict[str, Any]:
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


def print_datasets(found: Sequence[Stored]) -> None:
    if not found:
        note("there are none yet")
        next_step("clusterctl data add NAME SOURCE")
        return
    table = Table("name", "images", "held out", "size", "classes", "takes", "made from", box=None, pad_edge=False)
    for stored in found:
        manifest = stored.manifest
        shape = "x".join(map(str, manifest.shape))
        cells = (
            manifest.name, str(manifest.samples), str(manifest.test_samples), shape, str(len(manifest.class_names)),
            readable(manifest.bytes), f"{manifest.format}: {one_line(str(stored.origin.get('path', '')), 80)}",
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    out.print(table)


def print_dataset(stored: Stored) -> None:
    manifest = stored.manifest
    names = ", ".join(manifest.class_names[:12]) + (", …" if len(manifest.class_names) > 12 else "")
    damaged = stored.origin.get("damaged")
    lines = {
        "name": manifest.name,
        "made from": f"{manifest.format}: {stored.origin.get('path', '')}",
        "images": f"{manifest.samples} to learn from, {manifest.test_samples} held out",
        "size": "x".join(map(str, manifest.shape)),
        "classes": f"{len(manifest.class_names)}: {names}",
        "mean": ", ".join(f"{value:.4f}" for value in manifest.mean),
        "deviation": ", ".join(f"{value:.4f}" for value in manifest.std),
        "files": f"{count_of(manifest.files, 'shard')}, {readable(manifest.bytes)}, in {stored.directory}",
        "skipped": count_of(damaged, "damaged record") if isinstance(damaged, list) and damaged else "nothing",
        "content": manifest.digest,
    }
    for name, value in lines.items():
        out.print(Text(f"{name:<10} {one_line(value, 400)}"))


def say_added(added: Added) -> None:
    manifest = added.stored.manifest
    if not added.fresh:
        note(f"{manifest.name} is there already, made from the same files")
        return
    for damaged in added.damaged[:NAMED]:
        warn(f"skipped {one_line(str(damaged))}")
    if len(added.damaged) > NAMED:
        warn(f"skipped {len(added.damaged)} damaged records; clusterctl data show {manifest.name} --json names all")
    size = "x".join(map(str, manifest.shape))
    held_out = f" and {manifest.test_samples} held out" if manifest.test_samples else ""
    out.print(
        f"{manifest.name}: {manifest.samples} images{held_out} of {size} in {len(manifest.class_names)} classes, "
        f"{readable(manifest.bytes)}",
        soft_wrap=True,
    )
    next_step(f"clusterctl launch --data {manifest.name}")


def pushed_document(done: Pushed) -> dict[str, Any]:
    sizes = {outcome.phone.name: outcome.value for outcome in done.outcomes}
    phones = [{**each, "bytes": sizes[each["phone"]]} for each in as_json(done.outcomes)]
    return {"whole": done.whole, "sent_bytes": done.sent_bytes, "seconds": round(done.seconds, 3), "phones": phones}


def say_pushed(name: str, done: Pushed) -> None:
    what = "all of it" if done.whole else "a share"
    arrived = [outcome.phone for outcome in done.outcomes if outcome.ok]
    if arrived:
        sent = f"{readable(done.sent_bytes)} sent in {done.seconds:.1f} s" if done.sent_bytes else "nothing was missing"
        note(f"{name}: {what} is on {fold(arrived)} ({sent})")
    if not done.outcomes.ok:
        print_outcomes(done.outcomes, f"clusterctl data push {name}")


def that_had_it(outcomes: Outcomes[dict[str, Any]] | None) -> list[Phone]:
    return [phone for phone, answer in outcomes.values() if answer.get("removed")] if outcomes else []


def removed_document(name: str, outcomes: Outcomes[dict[str, Any]] | None, *, here: bool) -> dict[str, Any]:
    """`removed`: it was there, and is no more."""
    had = {phone.name for phone in that_had_it(outcomes)}
    phones = [{**each, "removed": each["phone"] in had} for each in as_json(outcomes)] if outcomes else []
    return {"name": name, "removed_here": here, "phones": phones}


def say_removed(name: str, outcomes: Outcomes[dict[str, Any]] | None, *, here: bool, kept: bool) -> None:
    if outcomes is None:
        note(f"{name} is deleted here; what phones have of it stays until --from-phones")
        return
    had = that_had_it(outcomes)
    places = [*(["here"] if here else []), *([f"on {fold(had)}"] if had else [])]
    if places:
        note(f"{name} is deleted {' and '.join(places)}")
    if without := [outcome.phone for outcome in outcomes if outcome.ok and outcome.phone not in had]:
        note(f"{fold(without)} had none of it")
    if kept:
        note(f"what this computer has of it stays until clusterctl data remove {name}")
    if not outcomes.ok:
        print_outcomes(outcomes, f"clusterctl data remove {name} --from-phones")


@contextmanager
def making(name: str) -> Iterator[Callable[[int, int], None]]:
    """Records, shown on a terminal when it takes a while."""
    state = {"done": 0, "total": 0}

    def draw() -> str:
        left = state["total"] - state["done"]
        return f"{name}: {_bar(state['done'], state['total'])} {count_of(left, 'image')} left"

    with _shown(draw):
        yield lambda done, total: state.update(done=done, total=total)


@contextmanager
def pushing(name: str, phones: Sequence[Phone]) -> Iterator[Callable[[int, int, Sequence[Phone]], None]]:
    """Bytes, and the phones that have not all of theirs yet."""
    lock = threading.Lock()
    state: dict[str, Any] = {"sent": 0, "total": 0, "left": phones}

    def draw() -> str:
        with lock:
            sent, total, left = state["sent"], state["total"], state["left"]
        return f"{name}: {_bar(sent, total)} {readable(max(0, total - sent))} left for {fold(left)}"

    def update(sent: int, total: int, left: Sequence[Phone]) -> None:
        with lock:
            state.update(sent=sent, total=total, left=left)

    with _shown(draw):
        yield update


@contextmanager
def _shown(draw: Callable[[], str]) -> Iterator[None]:
    started = time.monotonic()

    def renderable() -> Text:
        return Text() if time.monotonic() - started < _DELAY_S else Text(draw(), "dim", no_wrap=True)

    if not err.is_terminal:
        yield
        return
    with Live(console=err, get_renderable=renderable, transient=True, refresh_per_second=5):
        yield


def _bar(done: int, total: int, width: int = 24) -> str:
    filled = width * done // total if total else 0
    return "█" * filled + "░" * (width - filled) + f" {100 * done // total if total else 0:3} %"
