"""Every kernel as phones run it: each NEON variant on the oldest processor that it supports, emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phone_agent.core import ops
from phone_agent.core.library import isas, library
from phone_agent.core.ops import Kind
from tests.phone_agent.core import host, qemu
from tests.phone_agent.core.cases import CASES
from tests.phone_agent.core.guarded import Guard
from tests.phone_agent.core.kernel_check import on_qemu
from tests.phone_agent.core.memory import Case, Wanted, block, struct
from tests.phone_agent.core.test_kernels import KINDS

pytestmark = pytest.mark.skipif(not qemu.is_there(), reason=f"needs {qemu.EMULATOR}: apt install qemu-user-static")
BATCH = 200
CHAINS, LANES = 12, 4  # of fma_peak.c, and of NEON


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qemu.runner(tmp_path_factory.mktemp("aarch64"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("isa", qemu.ISAS)
def test_kernel_agrees_with_the_oracle(program: Path, kind: Kind, isa: str) -> None:
    cases = list(CASES[kind](full=False))
    wrong = [*on_qemu(program, cases, isa, 1, Guard.BEHIND), *on_qemu(program, cases[::3], isa, 2, Guard.BEFORE)]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("isa", qemu.ISAS)
def test_kernel_agrees_with_the_oracle_on_the_full_grid(program: Path, kind: Kind, isa: str) -> None:
    cases = list(CASES[kind](full=True))
    wrong: list[str] = []
    for start in range(0, len(cases), BATCH):
        for threads, guard in ((1, Guard.BEFORE), (2, Guard.BEHIND), (3, Guard.BEHIND)):
            wrong += on_qemu(program, cases[start : start + BATCH], isa, threads, guard)
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("isa", qemu.ISAS)
@pytest.mark.parametrize(("in_double", "lanes"), [(0, LANES), (1, LANES // 2)])
def test_fma_peak_counts_its_operations(program: Path, isa: str, in_double: int, lanes: int) -> None:
    flops = Wanted(block("flops", np.array([np.nan]), np.float64), np.array([1000 * CHAINS * lanes * 2.0]), 0.0)
    op = struct(ops.FmaPeak, flops=flops.memory, count=1000, in_double=in_double)
    case = Case("1000 rounds", Kind.FMA_PEAK, op, (flops,))
    assert not list(on_qemu(program, [case], isa, 2, Guard.BEHIND))


def test_every_kernel_runs_here() -> None:
    """Except fma_peak, which has its own test above."""
    there, tried = set(Kind), {*CASES, Kind.FMA_PEAK}
    assert tried == there, f"{len(tried & there)} of {len(there)}; without a case: {there - tried}"
    assert not [kind.name for kind in CASES if not any(CASES[kind](full=False))]


AGREED = (
    Kind.LOWRANK_ORTHONORMALIZE,
    Kind.LOWRANK_RECONSTRUCT,
)  # every rank computes these, and the results must be identical


@pytest.mark.parametrize("kind", AGREED)
def test_ranks_agree_to_the_bit_on_different_processors(program: Path, kind: Kind) -> None:
    fused = [isa for isa in isas(library()) if isa != "sse2"]  # with fused multiply-add, like phones
    if not fused:
        pytest.skip("this processor rounds between multiplying and adding")
    cases = list(CASES[kind](full=False))
    for isa in qemu.ISAS:
        for case, there in zip(cases, qemu.run(program, cases, isa, 1, Guard.BEHIND), strict=True):
            matrix = id(case.wanted[-1].memory)
            for name in fused:
                here = host.run(case, name, 1, Guard.BEHIND)
                assert here[matrix].tobytes() == there[matrix].tobytes(), f"{case.name}: {name} and {isa} differ"


def test_fp16_kernels_need_processors_with_fp16(program: Path) -> None:
    assert qemu.runs_here(program, "cortex-a76") == {"neon-fp16": True, "neon": True}
    assert qemu.runs_here(program, "cortex-a53") == {"neon-fp16": False, "neon": True}
