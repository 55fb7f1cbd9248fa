"""How phones compute: flags before measurements, measurements only where they still hold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.tune.compute_choice import NoGpuError, advise, in_words, is_needed
from orchestrator.tune.device_kinds import NO_GPU, Kind, parse_kind
from orchestrator.tune.store import Tuned, TuneStore
from phone_agent.backends.opencl.device import Limits
from phone_agent.contract.schema import ComputeSpec, DeviceConfig, RunSpec
from phone_agent.train.device_config import config_for
from tests.orchestrator.launch.samples import phones, spec

ONE, TWO = phones(2)
LIMITS = Limits("gpu", 2, 1024, 32768, 1 << 29, 1 << 31, unified=True)
S10 = Kind("SM-G975F, aarch64, 8 cores, 4 big, neon-fp16", "c0de", "Adreno 640, 512.0, OpenCL 2.0", limits=LIMITS)
BARE = Kind("SM-G975F, aarch64, 8 cores, 4 big, neon-fp16", "c0de", NO_GPU, "pyopencl cannot be loaded")
WAY = DeviceConfig("hybrid", gpu_fraction=0.75, tiles={"width": 8})
TUNED = Tuned(S10.name, S10.core, S10.driver, "mobilenet_reduced", 16, WAY, 40.0, ({"part": "cpu"},), 0.0)
ADRENO = {"device": "Adreno 640", "driver": "512.0", "version": "OpenCL 2.0", **asdict(LIMITS)}
TOLD: dict[str, Any] = {
    "model": "SM-G975F", "arch": "aarch64", "cores": 8, "big_cores": 4, "isa": "neon-fp16", "core": "c0de",
    "opencl": {"device": ADRENO, "why": ""},
}  # fmt: skip


def test_all_phones_of_a_kind_compute_as_one_of_them_was_measured() -> None:
    advice = advise(ComputeSpec(), {ONE: S10, TWO: S10}, {S10.name: TUNED})
    assert advice.devices == {ONE.name: WAY, TWO.name: WAY}
    assert advice.notes == (
        "sw1:1-2 as tuned on 1970-01-01 with mobilenet_reduced: hybrid, 75 % of the images on the GPU, tiles width 8",
    )
    assert not advice.warnings
    assert advice.gpus == {ONE.name: LIMITS, TWO.name: LIMITS}


@pytest.mark.parametrize(
    ("now", "word"),
    [(replace(S10, driver="Adreno 640, 513.1, OpenCL 2.0"), "driver"), (replace(S10, core="f00d"), "core")],
)
def test_a_changed_driver_or_core_is_told_and_the_measurement_not_used(now: Kind, word: str) -> None:
    advice = advise(ComputeSpec(), {ONE: now}, {S10.name: TUNED})
    assert not advice.devices
    assert word in advice.warnings[0]
    assert "is not used" in advice.warnings[0]


def test_flags_go_before_measurements() -> None:
    known = {S10.name: TUNED}
    assert advise(ComputeSpec(backend="opencl"), {ONE: S10}, known).devices[ONE.name] == DeviceConfig(
        "opencl", tiles={"width": 8}
    )
    assert advise(ComputeSpec(threads=3), {ONE: S10}, known).devices[ONE.name].threads == 3
    assert not is_needed(ComputeSpec(backend="cpu"), known)
    assert not is_needed(ComputeSpec(), {})


def test_a_gpu_asked_for_by_name_must_be_there() -> None:
    with pytest.raises(NoGpuError, match=r"(?s)1 of 2 phones.*p1-02 \(sw1:2\): pyopencl") as caught:
        advise(ComputeSpec(backend="opencl"), {ONE: S10, TWO: BARE}, {})
    assert caught.value.remedy == "--backend auto or cpu, or --limit sw1:1"
    assert not advise(ComputeSpec(), {ONE: S10, TWO: BARE}, {}).devices


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    store = TuneStore(tmp_path / "state/tuned.json")
    assert store.read() == {}
    store.keep(TUNED)
    store.keep(replace(TUNED, kind="another"))
    assert store.read() == {S10.name: TUNED, "another": replace(TUNED, kind="another")}
    (tmp_path / "state/tuned.json").write_text('{"a": {"kind": 1}}')
    with pytest.raises(ClusterctlError, match=r"tuned\.json"):
        store.read()


def test_a_phones_word_on_its_kind() -> None:
    assert parse_kind(TOLD) == S10
    assert parse_kind({**TOLD, "opencl": {"device": None, "why": "pyopencl cannot be loaded"}}) == BARE
    assert parse_kind(json.loads(json.dumps(TOLD))).limits == LIMITS
    odd = [{**ADRENO, "kind": "abacus"}, {**ADRENO, "compute_units": "x"}, {"device": "Adreno 640"}]
    wrong: list[Any] = [{}, [], {**TOLD, "cores": "many"}, {**TOLD, "opencl": None}]
    wrong += [{**TOLD, "opencl": {"device": each, "why": ""}} for each in odd]
    for garbled in wrong:
        with pytest.raises(PhoneError):
            parse_kind(garbled)


def test_a_runs_specification_keeps_the_ways() -> None:
    run = replace(spec(2), compute=ComputeSpec(devices={"p1-01": WAY}))
    again = RunSpec.from_json(run.to_json())
    assert again == run
    assert config_for(again, "p1-01") == WAY
    assert config_for(again, "p1-02") == DeviceConfig("cpu")
    assert config_for(replace(again, compute=ComputeSpec("opencl", threads=2)), "p1-02") == DeviceConfig("opencl", 2)


def test_a_way_in_words() -> None:
    assert in_words(DeviceConfig("cpu", 8, little_cores=True)) == "cpu, 8 threads, little cores as well"
