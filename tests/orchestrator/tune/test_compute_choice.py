"""Choice of device configs: flags override tuning results, and stale results are ignored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ClusterctlError
from orchestrator.tune.compute_choice import NoGpuError, choose_devices, describe_config, needs_device_kinds
from orchestrator.tune.device_kinds import NO_GPU, DeviceKind, read_kind
from orchestrator.tune.store import Tuned, TuneStore
from phone_agent.backends.opencl.device import Limits
from phone_agent.contract.decode import DecodeError, decode
from phone_agent.contract.replies import DeviceKindReply, TuneRow
from phone_agent.contract.schema import ComputeSpec, DeviceConfig, RunSpec
from phone_agent.train.device_config import config_for
from tests.orchestrator.launch.samples import phones, spec

ONE, TWO = phones(2)
LIMITS = Limits("gpu", 2, 1024, 32768, 1 << 29, 1 << 31, unified=True)
NAME = "SM-G975F, aarch64, 8 cores, 4 big, neon-fp16"
S10 = DeviceKind(NAME, "c0de", "c1", "Adreno 640, 512.0, OpenCL 2.0", limits=LIMITS)
BARE = DeviceKind(NAME, "c0de", "c1", NO_GPU, "pyopencl cannot be loaded")
CONFIG = DeviceConfig("hybrid", gpu_fraction=0.75, tiles={"width": 8})
TUNED = Tuned(S10.name, S10.core, "c1", S10.driver, "mobilenet_reduced", 16, CONFIG, 40.0, (TuneRow("cpu"),), 0.0)
ADRENO = {"device": "Adreno 640", "driver": "512.0", "version": "OpenCL 2.0", **asdict(LIMITS)}
ANSWER: dict[str, Any] = {
    "model": "SM-G975F", "arch": "aarch64", "cores": 8, "big_cores": 4, "isa": "neon-fp16", "core": "c0de",
    "opencl_kernels": "c1",
    "opencl": {"device": ADRENO, "why": ""},
}  # fmt: skip


def test_all_phones_of_a_kind_use_its_tuning_result() -> None:
    choices = choose_devices(ComputeSpec(), {ONE: S10, TWO: S10}, {S10.name: TUNED})
    assert choices.devices == {ONE.name: CONFIG, TWO.name: CONFIG}
    assert choices.notes == (
        (
            "sw1:1-2: using settings tuned on 1970-01-01 with mobilenet_reduced: "
            "hybrid, 75% of the images on the GPU, tiles width 8"
        ),
    )
    assert not choices.warnings
    assert choices.gpus == {ONE.name: LIMITS, TWO.name: LIMITS}


def test_a_phone_without_a_gpu_does_not_depend_on_opencl_kernels() -> None:
    tuned = replace(TUNED, driver=NO_GPU, device_config=DeviceConfig("cpu", 4))
    now = replace(BARE, opencl_kernels="c2")
    assert not choose_devices(ComputeSpec(), {ONE: now}, {S10.name: tuned}).warnings


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (replace(S10, driver="Adreno 640, 513.1, OpenCL 2.0"), "driver"),
        (replace(S10, core="f00d"), "core"),
        (replace(S10, opencl_kernels="c2"), "OpenCL kernels"),
    ],
)
def test_tuning_results_for_another_driver_or_other_kernels_are_ignored(now: DeviceKind, word: str) -> None:
    choices = choose_devices(ComputeSpec(), {ONE: now}, {S10.name: TUNED})
    assert not choices.devices
    assert word in choices.warnings[0]
    assert "ignoring" in choices.warnings[0]


def test_flags_override_tuning_results() -> None:
    known = {S10.name: TUNED}
    assert choose_devices(ComputeSpec(backend="opencl"), {ONE: S10}, known).devices[ONE.name] == DeviceConfig(
        "opencl", tiles={"width": 8}
    )
    assert choose_devices(ComputeSpec(threads=3), {ONE: S10}, known).devices[ONE.name].threads == 3
    assert not needs_device_kinds(ComputeSpec(backend="cpu"), known)
    assert not needs_device_kinds(ComputeSpec(), {})


def test_a_requested_gpu_must_exist() -> None:
    with pytest.raises(NoGpuError, match=r"(?s)1 of 2 phones.*p1-02 \(sw1:2\): pyopencl") as caught:
        choose_devices(ComputeSpec(backend="opencl"), {ONE: S10, TWO: BARE}, {})
    assert caught.value.remedy == "--backend auto or cpu, or --limit sw1:1"
    assert not choose_devices(ComputeSpec(), {ONE: S10, TWO: BARE}, {}).devices


def test_saved_results_are_read_back(tmp_path: Path) -> None:
    store = TuneStore(tmp_path / "state/tuned.json")
    assert store.read() == {}
    store.save(TUNED)
    store.save(replace(TUNED, kind="another"))
    assert store.read() == {S10.name: TUNED, "another": replace(TUNED, kind="another")}
    (tmp_path / "state/tuned.json").write_text('{"a": {"kind": 1}}')
    with pytest.raises(ClusterctlError, match=r"tuned\.json"):
        store.read()


def test_results_saved_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    def save(number: int) -> None:
        TuneStore(tmp_path / "tuned.json").save(replace(TUNED, kind=f"kind {number}"))

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(save, range(64)))
    assert len(TuneStore(tmp_path / "tuned.json").read()) == 64


def test_parse_device_kind() -> None:
    assert read_kind(decode(DeviceKindReply, ANSWER)) == S10
    bare = {**ANSWER, "opencl": {"device": None, "why": "pyopencl cannot be loaded"}}
    assert read_kind(decode(DeviceKindReply, bare)) == BARE
    odd = [{**ADRENO, "kind": "abacus"}, {**ADRENO, "compute_units": "x"}, {"device": "Adreno 640"}]
    wrong: list[Any] = [{}, [], {**ANSWER, "cores": "many"}, {**ANSWER, "opencl": None}]
    wrong += [{**ANSWER, "opencl": {"device": each, "why": ""}} for each in odd]
    for invalid in wrong:
        with pytest.raises(DecodeError):
            decode(DeviceKindReply, invalid)


def test_run_spec_round_trips_device_configs() -> None:
    run = replace(spec(2), compute=ComputeSpec(devices={"p1-01": CONFIG}))
    again = RunSpec.from_json(run.to_json())
    assert again == run
    assert config_for(again, "p1-01") == CONFIG
    assert config_for(again, "p1-02") == DeviceConfig("cpu")
    assert config_for(replace(again, compute=ComputeSpec("opencl", threads=2)), "p1-02") == DeviceConfig("opencl", 2)


def test_describe_config() -> None:
    assert describe_config(DeviceConfig("cpu", 8, little_cores=True)) == "cpu, 8 threads, including little cores"
