"""Instruction counts on the emulated processor, the detected loops, and the modeled step times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import neon
from benchmarks.arm import step
from benchmarks.arm.counting import executed, read_log, uncounted
from benchmarks.arm.kernels import kernels
from benchmarks.arm.loops import innermost_loops
from benchmarks.networks import TABLE_I, network
from orchestrator.plan.forecast.device_model import GALAXY_S10_PLUS, KernelCost, kernel_name
from phone_agent.core.ops import Kind
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import make_plan
from tests.phone_agent.core import qemu

LOG = """\
----------------
IN: _start
0x1000:  94000001  bl       #0x2000

Trace 0: 0x7f00 [00/0000000000001000/01/02] _start
----------------
IN: core_pool_run
0x2000:  94000001  movz     x1, #0x9

Trace 0: 0x7f00 [00/0000000000002000/01/02] core_pool_run
----------------
IN: outer
0x3000:  94000001  movz     x3, #0

Trace 0: 0x7f00 [00/0000000000003000/01/02] outer
----------------
IN: outer
0x3004:  94000001  ldr      q0, [x0], #0x10
0x3008:  94000001  fmla     v1.4s, v0.4s, v2.s[0]
0x300c:  94000001  tbnz     w9, #3, #0x3018

{loop}\
----------------
IN: outer
0x3018:  94000001  fmla     v4.4s, v0.4s, v2.s[0]

Trace 0: 0x7f00 [00/0000000000003018/01/02] outer
----------------
IN: outer
0x301c:  94000001  cbnz     x2, #0x3000

Trace 0: 0x7f00 [00/000000000000301c/01/02] outer
Trace 0: 0x7f00 [00/0000000000009000/01/02] core_pool_shutdown
Trace 0: 0x7f00 [00/0000000000003000/01/02] outer
"""
ROUND = """\
Trace 0: 0x7f00 [00/0000000000003004/01/02] outer
"""
TAIL = """\
----------------
IN: outer
0x3010:  94000001  fmla     v3.4s, v0.4s, v2.s[1]
0x3014:  94000001  b.ne     #0x3004

Trace 0: 0x7f00 [00/0000000000003010/01/02] outer
"""
LOOP = ROUND + TAIL + "".join(ROUND + TAIL.splitlines(keepends=True)[-1] for _ in range(9)) + ROUND


def test_instructions_are_counted_inside_the_core_only() -> None:
    counted = read_log(LOG.format(loop=LOOP).splitlines(keepends=True))
    assert counted.times[0x3004] == 11
    assert counted.times[0x3010] == counted.times[0x3014] == 10
    assert counted.times[0x3000] == 1
    assert 0x1000 not in counted.times
    assert counted.total == 2 + 3 * 11 + 2 * 10 + 1 + 1


def test_a_retranslated_block_counts_with_the_version_that_ran() -> None:
    shorter = "IN: core_pool_run\n0x2000:  94000001  nop\n\nTrace 0: 0x7f00 [00/0000000000002000/01/02] core_pool_run\n"
    log = shorter.replace("nop\n", "nop\n0x2004:  94000001  nop\n") + shorter
    counted = read_log(log.splitlines(keepends=True))
    assert counted.times == {0x2000: 2, 0x2004: 1}


def test_innermost_loop_contains_the_instructions_that_usually_run() -> None:
    (loop,) = innermost_loops(read_log(LOG.format(loop=LOOP).splitlines(keepends=True)))
    assert loop.function == "outer"
    assert loop.rounds == 10
    assert [text.split()[0] for text in loop.body] == ["ldr", "fmla", "tbnz", "fmla", "b.ne"]
    assert (loop.multiply_adds, loop.stack, loop.limit, loop.bound) == (2, 0, 1.0, "arithmetic")


def test_every_op_kind_has_a_kernel_and_names_are_unique() -> None:
    made = list(kernels())
    assert uncounted(made) == set()
    assert uncounted(each for each in made if each.kind != Kind.OPTIMIZER_UPDATE) == {Kind.OPTIMIZER_UPDATE}
    assert len({each.name for each in made}) == len(made)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not qemu.is_there():
        pytest.skip(f"needs {qemu.EMULATOR}: apt install qemu-user-static")
    return qemu.runner(tmp_path_factory.mktemp("aarch64"))


QUICK = (
    "conv_forward fully connected", "conv_backward_weights fully connected", "depthwise_forward s2",
    "batch_norm_backward", "add_forward", "encode fp16", "decode fp16", "optimizer_update sgd",
)  # fmt: skip


@pytest.mark.parametrize(("isa", "name"), [*((qemu.ISAS[0], name) for name in QUICK), (qemu.ISAS[1], QUICK[0])])
def test_kernel_executes_no_more_instructions_than_the_baseline(program: Path, isa: str, name: str) -> None:
    kernel = next(each for each in kernels() if each.name == name)
    before = json.loads(neon.BASELINE.read_text())["kernels"][isa][name]["instructions"]
    now = executed(program, kernel, isa).total
    message = f"{now} instructions, {before} in the baseline: if intended, run python -m benchmarks.neon --update"
    assert now <= before * neon.MAX_INSTRUCTION_RATIO, message
    assert now >= before * 0.9, f"improved, but the baseline is outdated: {message}"


def test_baseline_contains_every_kernel() -> None:
    names = {each.name for each in kernels()}
    baseline = json.loads(neon.BASELINE.read_text())["kernels"]
    assert {isa: set(counts) for isa, counts in baseline.items()} == dict.fromkeys(qemu.ISAS, names)


def measured(instructions: int, cycles: float, name: str = "optimizer_update sgd") -> neon.Evaluation:
    return neon.Evaluation(next(each for each in kernels() if each.name == name), "neon", instructions, cycles, ())


def test_regressions_are_reported_with_their_size() -> None:
    baseline = neon.baseline_of([measured(1000, 500.0)])
    assert neon.regressions([measured(1000, 500.0), measured(900, 400.0)], baseline) == []
    assert neon.regressions([measured(1005, 505.0)], baseline) == []
    (message,) = neon.regressions([measured(1100, 500.0)], baseline)
    assert message == "optimizer_update sgd (neon): 1100 instructions, 1000 before: +10.0%"
    (message,) = neon.regressions([measured(1000, 600.0)], baseline)
    assert "600 cycles, 500 before: +20.0%" in message
    (message,) = neon.regressions([measured(1, 1.0, "encode fp16")], baseline)
    assert message == "encode fp16 (neon) is not in the baseline: --update"


@pytest.mark.parametrize("name", sorted(set(TABLE_I) - {"resnet101", "resnet152"}))  # the same layers as resnet50
def test_every_op_of_every_network_has_a_representative_kernel(name: str) -> None:
    names = {each.name for each in kernels()}
    plan = make_plan(network(name), 2, Options(threads=4))
    assert {kernel_name(each) for each in plan.training.ops} <= names


def test_step_time_is_the_larger_of_compute_and_memory_time() -> None:
    free = dict.fromkeys((each.name for each in kernels()), KernelCost(0.0, 0.0))
    for_memory = step.modeled("squeezenet_v1_1", step.galaxy_s10_plus(free))
    assert for_memory.memory_share == pytest.approx(1.0)
    slow = dict.fromkeys(free, KernelCost(1e3, 1e6))
    computing = step.modeled("squeezenet_v1_1", step.galaxy_s10_plus(slow))
    assert computing.memory_share == 0.0
    assert computing.seconds > for_memory.seconds


def test_shipped_phone_model_matches_the_baseline() -> None:
    assert GALAXY_S10_PLUS.read_text() == neon.shipped(json.loads(neon.BASELINE.read_text()))


def test_bound_of_the_paper_follows_from_its_efficiency() -> None:
    """230.2 MB take 3.66 s on gigabit Ethernet; at an efficiency of 12.2%, computing two images took 0.51 s."""
    assert step.paper_at_most("resnet152", 230.2) == pytest.approx(2 / 0.508, rel=0.01)
    assert step.paper_at_most("alexnet", 232.56) is None
