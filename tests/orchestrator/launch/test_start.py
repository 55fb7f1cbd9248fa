"""Starting a run: what is left on phones and in the record when it fails. No phone is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.errors import ClusterctlError
from orchestrator.launch import start as module
from orchestrator.launch.context import LaunchContext
from orchestrator.launch.initial_state import InitialState
from orchestrator.records.record import RunStore
from tests.orchestrator.health.samples import SUBNET
from tests.orchestrator.launch.samples import phones, spec

NOTHING = cast("InitialState", SimpleNamespace(save=lambda *_: None))


class Phones:
    """Records which agent commands are called. `start` fails as the test asks."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        self.called: list[str] = []
        connection = SimpleNamespace(put=lambda *_: None)
        fleet = SimpleNamespace(connection=lambda _: connection, map=lambda work, _: work(connection))
        cluster = SimpleNamespace(subnet=SUBNET, source=tmp_path / "inventory.yaml")
        self.store = RunStore(tmp_path)
        self.context = cast(
            "LaunchContext",
            SimpleNamespace(
                store=self.store,
                fleet=fleet,
                cluster=cluster,
                phones_of=lambda spec: phones(len(spec.ranks)),
                on_progress=lambda *_: None,
            ),
        )

        def call(_connection: object, _reply: object, verb: str, *_: Any) -> None:
            self.called.append(verb)
            if verb == "start":
                raise error

        monkeypatch.setattr("orchestrator.fleet.agent.call", call)
        monkeypatch.setattr(module, "stage_run", lambda *_: None)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterctlError("no reply"), OSError(28, "No space left")])
def test_a_start_without_a_reply_is_cleaned_up_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """mpirun may run on the head phone, and would wait for its daemons for ever."""
    fake = Phones(tmp_path, monkeypatch, error)
    with pytest.raises(type(error)):
        module.launch_run(fake.context, spec(2), NOTHING)
    assert fake.called == ["start", "cleanup"]
    assert fake.store.read(spec().run_id).state == "failed"


def test_a_phone_that_joined_another_run_during_the_push_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Phones(tmp_path, monkeypatch, ClusterctlError(""))
    other = fake.store.create(replace(spec(2), run_id="20260131-130000-lenet-00bb"))
    with pytest.raises(ClusterctlError, match=f"p1-01 takes part in {other.run_id} by now"):
        module.launch_run(fake.context, spec(2), NOTHING)
    assert fake.called == []
