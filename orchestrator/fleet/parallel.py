"""Run work on many phones with a bounded thread pool; results are reported in the calling thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.fleet.errors import FleetInterrupted
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone

T = TypeVar("T")


def map_phones(
    work: Callable[[Phone], Outcome[T]],
    phones: Sequence[Phone],
    workers: int,
    on_done: Callable[[Outcome[T]], None] | None = None,
) -> Outcomes[T]:
    """`work` must return failures as outcomes, not raise. `on_done` runs in the calling thread."""
    waiting: queue.SimpleQueue[Phone] = queue.SimpleQueue()
    for phone in phones:
        waiting.put(phone)
    arrived: queue.SimpleQueue[Outcome[T]] = queue.SimpleQueue()
    stop = threading.Event()
    done: dict[Phone, Outcome[T]] = {}
    try:
        for _ in range(min(workers, len(phones))):
            # Daemons: a Ctrl-C must not wait for phones that do not answer.
            threading.Thread(target=_worker, args=(work, waiting, arrived, stop), daemon=True).start()
        while len(done) < len(phones):
            outcome = arrived.get()
            done[outcome.phone] = outcome
            if on_done:
                on_done(outcome)
    except KeyboardInterrupt:
        _drain(arrived, done)
        raise FleetInterrupted(_in_order(phones, done)) from None
    finally:
        stop.set()
    return _in_order(phones, done)


def _worker(
    work: Callable[[Phone], Outcome[T]],
    waiting: queue.SimpleQueue[Phone],
    arrived: queue.SimpleQueue[Outcome[T]],
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            phone = waiting.get_nowait()
        except queue.Empty:
            return
        arrived.put(work(phone))


def _drain(arrived: queue.SimpleQueue[Outcome[T]], done: dict[Phone, Outcome[T]]) -> None:
    while not arrived.empty():
        outcome = arrived.get()
        done[outcome.phone] = outcome


def _in_order(phones: Sequence[Phone], done: dict[Phone, Outcome[T]]) -> Outcomes[T]:
    return Outcomes(tuple(done.get(phone) or _cancelled(phone) for phone in phones))


def _cancelled(phone: Phone) -> Outcome[T]:
    return Outcome(phone, Status.CANCELLED, 0.0, phase=Phase.CANCELLED, error="interrupted")
