from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli import launch_flags
from orchestrator.errors import UsageError
from orchestrator.launch.mpirun import KEEPALIVE, launch_spec
from orchestrator.launch.request import AUTO, LaunchRequest, Span
from orchestrator.launch.run_spec import build_graph, cautions, check_request, common_ssh_port, plan_run
from orchestrator.plan.batch import split_batches
from orchestrator.plan.link_rate import allreduce_limit_s, bytes_per_second
from orchestrator.records.record import RUN_ID
from phone_agent.backends.opencl.memory_estimate import ADRENO_640
from phone_agent.contract.choices import MAX_THREADS
from phone_agent.contract.schema import CommunicationSpec, DataSpec, DeviceConfig, OptimizerSpec, RunSpec, ScheduleSpec
from phone_agent.device import process
from phone_agent.nn.plan.options import Options
from phone_agent.train.memory_budget import plan_memory
from tests.orchestrator.launch.samples import phones, spec

DATA = DataSpec("fashion-mnist", 60000, (28, 28, 1), 10)
SUBNET = IPv4Network("10.77.0.0/16")


@given(st.integers(1, 200), st.integers(0, 5000))
def test_a_global_batch_is_shared_whole_and_evenly(count: int, extra: int) -> None:
    batches = split_batches(count, None, count + extra)
    assert sum(batches) == count + extra
    assert max(batches) - min(batches) <= 1


def test_a_batch_too_small_for_the_phones_is_refused() -> None:
    with pytest.raises(UsageError, match="without an image"):
        split_batches(8, None, 7)


def test_ranks_follow_the_phones_and_the_steps_the_epochs() -> None:
    planned = plan_run(LaunchRequest(epochs=2, batch=25), phones(4, switches=2), DATA)
    assert [rank.phone for rank in planned.ranks] == ["p1-01", "p1-02", "p2-01", "p2-02"]
    assert [rank.rank for rank in planned.ranks] == [0, 1, 2, 3]
    assert planned.steps == 1200
    assert planned.global_batch == 100


@pytest.mark.parametrize("batch", [AUTO, 1])
def test_a_dataset_smaller_than_the_rack_is_refused(batch: int) -> None:
    few = replace(DATA, samples=3)
    with pytest.raises(UsageError, match="3 samples for 4 phones"):
        plan_run(LaunchRequest(batch=batch, memory_bytes=10**9), phones(4), few)


def test_run_ids_have_the_agreed_form_and_differ() -> None:
    ids = {plan_run(LaunchRequest(), phones(1), DATA, now=1769860800.0).run_id for _ in range(5)}
    assert all(RUN_ID.fullmatch(run_id) and run_id.startswith("20260131-120000-lenet-") for run_id in ids)
    assert len(ids) > 1


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (LaunchRequest(model="resnet999"), "unknown model 'resnet999'; did you mean"),
        (LaunchRequest(algorithm="carrier-pigeon"), "ring, hierarchical, mpi"),
        (LaunchRequest(wire="morse"), "fp32, fp16, bf16, int8, powersgd"),
        (LaunchRequest(wire="int8", algorithm="mpi"), "sends fp32 only"),
        (LaunchRequest(optimizer="adam"), "sgd, nesterov, lars, lamb"),
        (LaunchRequest(optimizer="lamb", epsilon=0.0), "epsilon"),
        (LaunchRequest(optimizer="lamb", epsilon=float("inf")), "without end"),
        (LaunchRequest(outer_rate=float("inf")), "without end"),
        (LaunchRequest(momentum=float("nan")), "without end"),
        (LaunchRequest(schedule="triangle"), "constant, step, polynomial, cosine"),
        (LaunchRequest(schedule="step"), "how many steps"),
        (LaunchRequest(schedule="step", step_every=Span(0)), "--step-every 0: the rate would fall at every step"),
        (LaunchRequest(recipe="resnet50-imagenet", step_every=Span(0.0, epochs=True)), "--step-every 0: "),
        (LaunchRequest(on_corrupt="weep"), "fail, skip"),
        (LaunchRequest(recipe="googlenet"), "googlenet-imagenet: Na et al."),
        (LaunchRequest(warmup=Span(float("inf"), epochs=True)), "without end"),
        (LaunchRequest(backend="abacus"), "cpu, opencl, hybrid, reference, auto"),
        (LaunchRequest(balance="by ear"), "no way to balance 'by ear'; there is: auto, off"),
        (LaunchRequest(steps=1, epochs=1), "exclude each other"),
        (LaunchRequest(optimizer="lars"), "--optimizer lars without --lr: 0.02 is sgd's"),
        (LaunchRequest(optimizer="lamb"), "--optimizer lamb without --lr"),
        (LaunchRequest(optimizer="lars", recipe="cifar10"), "without --lr: cifar10's is nesterov's"),
        (LaunchRequest(optimizer="lamb", recipe="cifar10-lars"), "without --lr: cifar10-lars's is lars's"),
        (LaunchRequest(optimizer="sgd", recipe="cifar10-lars"), "sgd without --lr: cifar10-lars's is lars's"),
        (LaunchRequest(steps=500, warmup=Span(500)), "--warmup of 500 steps in a run of 500: .* would only rise"),
        (LaunchRequest(epochs=3, warmup=Span(5, epochs=True)), "--warmup of 5 epochs in a run of 3: "),
        (LaunchRequest(recipe="cifar10-lars", epochs=3, warmup=Span(4, epochs=True)), "--warmup of 4 epochs"),
        (LaunchRequest(batch=1, global_batch=1), "exclude each other"),
        (LaunchRequest(augment="imagnet"), "no augmentation 'imagnet'; there is: none, flip, cifar, imagenet"),
    ],
)
def test_bad_flags_are_told_before_anything_is_touched(request_: LaunchRequest, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_request(request_)


@pytest.mark.parametrize(
    ("request_", "words", "remedy"),
    [
        (LaunchRequest(gamma=0.5), "--gamma means nothing to --schedule constant", "--schedule step, or no --gamma"),
        (LaunchRequest(recipe="cifar10", gamma=0.5), "--gamma means nothing to --schedule cosine", "--schedule step, "),
        (LaunchRequest(step_every=Span(9)), "--step-every means nothing to --schedule constant", "--schedule step, "),
        (LaunchRequest(schedule="cosine", power=2.0), "--power means nothing to --schedule cosine", "polynomial, or"),
        (
            LaunchRequest(schedule="step", step_every=Span(9), floor=0.0),
            "--floor means nothing to --schedule step",
            "--schedule polynomial or cosine, or no --floor",
        ),
        (LaunchRequest(trust=0.1), "--trust means nothing to --optimizer sgd", "--optimizer lars, or no --trust"),
        (LaunchRequest(optimizer="nesterov", epsilon=0.1), "--epsilon means nothing to --optimizer nesterov", "lamb"),
        (LaunchRequest(second_momentum=0.9), "--second-momentum means nothing to --optimizer sgd", "--optimizer lamb"),
        (LaunchRequest(outer_rate=0.7), "--outer-rate means nothing without --local-steps", "--local-steps 16, or no "),
        (LaunchRequest(outer_momentum=0.9), "--outer-momentum means nothing without --local-steps", "--local-steps 16"),
    ],
)
def test_flags_that_nothing_would_read_are_refused(request_: LaunchRequest, words: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=words) as told:
        check_request(request_)
    assert remedy in (told.value.remedy or "")


@pytest.mark.parametrize(
    "request_",
    [
        LaunchRequest(recipe="resnet50-imagenet", schedule="cosine", floor=0.01),
        LaunchRequest(recipe="resnet50-imagenet-lars", optimizer="sgd", learning_rate=0.1, schedule="constant"),
        LaunchRequest(recipe="cifar10-lars", trust=0.01),
        LaunchRequest(schedule="step", step_every=Span(9), gamma=0.5),
        LaunchRequest(optimizer="lamb", learning_rate=0.005, epsilon=1e-3, second_momentum=0.9),
        LaunchRequest(local_steps=4, outer_rate=0.7, outer_momentum=0.9),
    ],
)
def test_a_recipes_figures_that_nothing_reads_are_put_aside(request_: LaunchRequest) -> None:
    check_request(request_)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (LaunchRequest(), []),
        (LaunchRequest(steps=10, warmup=Span(9)), []),
        (LaunchRequest(recipe="cifar10"), []),
        (LaunchRequest(optimizer="lars", learning_rate=4.0), []),
        (LaunchRequest(recipe="cifar10-lars", optimizer="lars"), []),
        (LaunchRequest(recipe="cifar10-lars", optimizer="sgd", learning_rate=0.4), []),
        (LaunchRequest(recipe="cifar10", optimizer="sgd"), []),
        (LaunchRequest(recipe="cifar10-lars", epochs=3), ["rises for 293 steps, and the run has 176"]),
        (LaunchRequest(warmup=Span(200)), ["rises for 200 steps, and the run has 200"]),
        (LaunchRequest(batch=25, steps=100, warmup=Span(1, epochs=True)), ["rises for 600 steps, and the run has 100"]),
    ],
)
def test_a_rate_that_only_rises_is_told_once_the_data_are_known(request_: LaunchRequest, told: list[str]) -> None:
    check_request(request_)
    found = cautions(plan_run(request_, phones(4), replace(DATA, shape=(32, 32, 3))))
    assert len(found) == len(told)
    assert all(words in line for words, line in zip(told, found, strict=True))


def test_a_run_that_is_to_be_judged_by_nothing_is_told() -> None:
    request = LaunchRequest(evaluate_every=5)
    (told,) = cautions(plan_run(request, phones(4), DATA))
    assert told.startswith(f"--evaluate-every 5: {DATA.name} has no held-out samples to judge by; ")
    assert cautions(plan_run(request, phones(4), replace(DATA, test_samples=7))) == []
    assert cautions(plan_run(LaunchRequest(), phones(4), DATA)) == [], "at the end it is judged where it can be"


def test_mpirun_is_called_as_termux_needs_it() -> None:
    launch = launch_spec(spec(), SUBNET, 8022)
    argv = launch.argv
    assert argv[0] == "mpirun"  # an absolute path would export LD_LIBRARY_PATH on every phone
    assert "--prefix" not in argv
    assert argv[argv.index("-np") + 1] == "4"
    parameters = {argv[at + 1]: argv[at + 2] for at, word in enumerate(argv) if word == "--mca"}
    assert parameters["btl_tcp_if_include"] == parameters["oob_tcp_if_include"] == "10.77.0.0/16"
    assert parameters["plm_rsh_no_tree_spawn"] == "1"
    assert {name: parameters[name] for name in KEEPALIVE} == KEEPALIVE
    assert parameters["plm_rsh_agent"].startswith("ssh -p 8022 ")
    assert argv[-4:] == ("train", spec().run_id, "--attempt", "0")
    assert launch.env["OMPI_MCA_btl"] == "self,tcp"
    assert launch.env["CLUSTERCTL_WIRED"] == spec().ranks[0].address


def test_mpirun_is_not_taken_for_the_head_phones_rank(tmp_path: Path) -> None:
    """Or a rank that was killed there would seem to live as long as mpirun, and another be blamed for it."""
    run_id = spec().run_id
    rank = ("python3", "-m", "phone_agent", "train", run_id, "--attempt", "0")
    for pid, argv in {7: launch_spec(spec(), SUBNET, 8022).argv, 8: rank, 9: (*rank[:4], "another", *rank[5:])}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in argv))
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (it) S " + "1 " * 40)
    assert sorted(process.of_run(run_id, tmp_path)) == [7, 8]
    assert process.ranks_of(run_id, tmp_path) == [8]


def test_a_hostile_run_id_is_only_ever_an_argument() -> None:
    evil = "x; touch $HOME/owned"
    argv = launch_spec(replace(spec(), run_id=evil), SUBNET, 8022).argv
    assert evil in argv
    assert not any(evil in word and word != evil for word in argv[argv.index("bash") :])


def test_phones_on_different_ssh_ports_are_refused() -> None:
    first, second = phones(2)
    assert common_ssh_port([first, second]) == 8022
    with pytest.raises(UsageError, match="8022, 8023"):
        common_ssh_port([first, replace(second, ssh_port=8023)])


@pytest.mark.parametrize(("rate", "expected"), [("1gbit", 125e6), ("100mbit", 12.5e6), ("2.5 Gbit", 312.5e6)])
def test_rates_are_read_as_tc_writes_them(rate: str, expected: float) -> None:
    assert bytes_per_second(rate) == pytest.approx(expected)


@pytest.mark.parametrize("rate", ["fast", "", "1", "0gbit", "-1gbit", "1gbyte"])
def test_other_rates_are_refused(rate: str) -> None:
    with pytest.raises(UsageError):
        bytes_per_second(rate)


def test_the_allreduce_limit_is_the_textbook_s() -> None:
    assert allreduce_limit_s(4, 102_400_000, "1gbit") == pytest.approx(1.2288)


@pytest.mark.parametrize(
    "request_",
    [
        LaunchRequest(epochs=float("inf")),
        LaunchRequest(learning_rate=float("inf")),
        LaunchRequest(steps=10**24),
        LaunchRequest(epochs=1e300),
    ],
)
def test_figures_without_end_are_refused(request_: LaunchRequest) -> None:
    with pytest.raises(UsageError):
        check_request(request_)


def test_a_batch_larger_than_a_phones_share_is_refused() -> None:
    with pytest.raises(UsageError, match=f"only {DATA.samples // 4} for each"):
        plan_run(LaunchRequest(batch=DATA.samples // 4 + 1), phones(4), DATA)
    assert plan_run(LaunchRequest(batch=DATA.samples // 4), phones(4), DATA).global_batch == DATA.samples // 4 * 4


def test_a_network_that_cannot_take_the_images_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"alexnet does not support 28x28x1 images: layer .*the smallest supported image is"
    ):
        plan_run(LaunchRequest(model="alexnet"), phones(2), DATA)


def test_how_to_compute_is_passed_on() -> None:
    request = LaunchRequest(backend="reference", threads=3, memory_bytes=2_800_000_000)
    spec = plan_run(request, phones(2), DATA)
    assert (spec.compute.backend, spec.compute.threads, spec.compute.memory_bytes) == ("reference", 3, 2_800_000_000)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_activations_in_fp16_are_asked_for_and_allow_larger_batches() -> None:
    whole = LaunchRequest(model="resnet20", batch=AUTO, memory_bytes=10**9)
    half, many = replace(whole, half=True), replace(DATA, samples=10**6)
    specs = [plan_run(request, phones(2), many) for request in (whole, half)]
    assert [spec.compute.activations for spec in specs] == ["fp32", "fp16"]
    assert specs[1].ranks[0].batch > 1.6 * specs[0].ranks[0].batch
    assert RunSpec.from_json(specs[1].to_json()) == specs[1]
    with pytest.raises(UsageError, match="--half: the reference backend stores what it computes"):
        plan_run(replace(half, batch=1, backend="reference"), phones(2), DATA)


def test_where_not_even_one_image_fits_the_memory_is_refused() -> None:
    small, ample = (LaunchRequest(batch=64, memory_bytes=amount) for amount in (60_000_000, 2_800_000_000))
    with pytest.raises(UsageError, match=r"--memory: lenet: one image needs .* of memory, the budget is 60 MB") as told:
        plan_run(small, phones(2), DATA)
    assert told.value.remedy == "use a larger --memory, or a smaller network with --model"
    assert plan_run(ample, phones(2), DATA).compute.memory_bytes == 2_800_000_000
    assert plan_run(replace(small, backend="reference"), phones(2), DATA).compute.memory_bytes == 60_000_000


@pytest.mark.parametrize("size", [{"batch": 128}, {"global_batch": 512}])
def test_a_batch_that_fits_the_memory_in_parts_is_left_to_the_phones(size: dict[str, Any]) -> None:
    data, budget = replace(DATA, shape=(224, 224, 3)), 600_000_000
    planned = plan_run(LaunchRequest(model="mobilenet_v1", memory_bytes=budget, **size), phones(4), data)
    assert ({rank.batch for rank in planned.ranks}, planned.compute.memory_bytes) == ({128}, budget)
    graph = build_graph("mobilenet_v1", data)
    _, at_once = plan_memory(graph, 128, Options(memory_bytes=budget), None)
    assert 1 < at_once.batch < 128, "in parts"


def test_as_many_threads_can_be_asked_for_as_the_core_runs() -> None:
    assert launch_flags.FLAGS["threads"].max == MAX_THREADS


def test_spans_of_epochs_follow_the_batch() -> None:
    request = LaunchRequest(
        batch=150, epochs=4, schedule="step", step_every=Span(1.5, epochs=True), warmup=Span(20), gamma=0.5
    )
    planned = plan_run(request, phones(4), DATA)
    assert planned.steps == 400
    assert planned.schedule == ScheduleSpec("step", warmup_steps=20, decay_steps=150, gamma=0.5)


def test_every_flag_reaches_the_phones() -> None:
    request = LaunchRequest(
        optimizer="lamb", learning_rate=0.5, momentum=0.8, weight_decay=0.1, decay_all=True, second_momentum=0.9,
        epsilon=1e-3, trust=0.2, label_smoothing=0.1, wire="fp16", algorithm="hierarchical", overlap=False,
        bucket_bytes=1000, micro_batch=8, local_steps=4, outer_rate=0.7, outer_momentum=0.9, balance="off",
    )  # fmt: skip
    planned = plan_run(request, phones(2), DATA)
    assert planned.optimizer == OptimizerSpec("lamb", 0.5, 0.8, 0.1, True, 0.9, 1e-3, 0.2, 0.1)  # noqa: FBT003
    assert planned.communication == CommunicationSpec(
        "hierarchical", "fp16", overlap=False, bucket_bytes=1000, local_steps=4, outer_learning_rate=0.7,
        outer_momentum=0.9,
    )  # fmt: skip
    assert (planned.compute.micro_batch, planned.compute.load_balancing) == (8, "off")
    assert RunSpec.from_json(planned.to_json()) == planned


def test_the_largest_batch_follows_each_phones_memory() -> None:
    free = {"p1-01": 400_000_000, "p1-02": 800_000_000}
    planned = plan_run(LaunchRequest(model="lenet", batch=AUTO), phones(2), DATA, memory=free)
    small, large = (rank.batch for rank in planned.ranks)
    assert 1 < small < large <= DATA.samples // 2
    alike = plan_run(LaunchRequest(batch=AUTO, memory_bytes=300_000_000), phones(2), DATA)
    assert len({rank.batch for rank in alike.ranks}) == 1
    heavy = LaunchRequest(model="alexnet", batch=AUTO, memory_bytes=3_000_000_000)
    ranks = plan_run(heavy, phones(3), replace(DATA, shape=(224, 224, 3))).ranks
    head, other, last = (rank.batch for rank in ranks)
    assert head == last < other, "checkpoints are written by the first and the last"
    with pytest.raises(UsageError, match="does not say how much memory"):
        plan_run(LaunchRequest(batch=AUTO), phones(2), DATA)
    with pytest.raises(UsageError, match="one image needs"):
        plan_run(LaunchRequest(batch=AUTO, memory_bytes=1_000_000), phones(2), DATA)


def test_the_largest_batch_follows_what_computes() -> None:
    """Of alexnet, whose packed weights are what a GPU has beside them; both together have two copies more."""
    data, limits = replace(DATA, shape=(224, 224, 3)), replace(ADRENO_640, compute_units=3)
    request = LaunchRequest(model="alexnet", batch=AUTO, memory_bytes=3_000_000_000, threads=4)

    def batch(backend: str, **known: Any) -> int:
        return plan_run(replace(request, backend=backend), phones(1), data, **known).ranks[0].batch

    cpu, gpu, both = (batch(name, gpus={"p1-01": limits}) for name in ("cpu", "opencl", "hybrid"))
    assert both < gpu < cpu
    assert batch("auto", ways={"p1-01": DeviceConfig("opencl")}, gpus={"p1-01": limits}) == gpu
    tight = replace(request, batch=1, memory_bytes=1_800_000_000)
    assert plan_run(replace(tight, backend="cpu"), phones(1), data)
    with pytest.raises(UsageError, match="one image needs"):
        plan_run(replace(tight, backend="hybrid"), phones(1), data)
