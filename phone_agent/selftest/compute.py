"""Checks of the compute core, training and MPI on this processor."""

from __future__ import annotations

import os
from functools import partial

from phone_agent.contract import layout
from phone_agent.contract.assumptions import CheckResult, Status, failed, ok, ok_if
from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import read_tail
from phone_agent.selftest import worker
from phone_agent.selftest.isolated_check import run_isolated_check

ISA_S = 120.0
BUILD_LOG = layout.ROOT / "jobs" / "build-mpi4py.log"  # written by provisioning/scripts/job.sh
STEPS, BATCH, SIDE = 6, 8, 28


def numpy() -> CheckResult:
    return ok(worker.check_numpy())


def core() -> CheckResult:
    """Loads the core in a separate process."""
    return ok(f"kernels for {worker.check_core()}")


def kernels() -> CheckResult:
    """One process per instruction set: a crash in one set must not hide the results of the others."""
    results = {isa: run_isolated_check(partial(_check_isa, isa), ISA_S) for isa in worker.check_core().split(", ")}
    wrong = [f"{isa}: {each.detail}" for isa, each in results.items() if each.status is not Status.OK]
    detail = "; ".join(wrong) or f"all kernels agree with numpy: {', '.join(results)}"
    return ok_if(not wrong, detail, **{isa: each.evidence or each.detail for isa, each in results.items()})


def _check_isa(isa: str) -> CheckResult:
    os.environ["CLUSTERCTL_ISA"] = isa  # for code that selects its kernels itself
    from phone_agent.selftest.kernels import kernel_errors

    errors = kernel_errors(isa)
    wrong = [f"{name}: error {error:.1e}" for name, (error, bound) in errors.items() if not error <= bound]
    return ok_if(not wrong, "; ".join(wrong), **{name: f"{error:.1e}" for name, (error, _) in errors.items()})


def training() -> CheckResult:
    """Trains LeNet with the core and with numpy on the same images: the losses must agree and decrease."""
    core_losses, numpy_losses = _losses("cpu"), _losses("reference")
    difference = max(abs(ours - theirs) / theirs for ours, theirs in zip(core_losses, numpy_losses, strict=True))
    evidence = {"core": core_losses, "numpy": numpy_losses}
    if not core_losses[-1] < core_losses[0]:
        return failed(f"the loss does not decrease: {core_losses[0]:.4f} to {core_losses[-1]:.4f}", **evidence)
    losses = f"loss {core_losses[0]:.4f} to {core_losses[-1]:.4f}"
    detail = f"{STEPS} steps of LeNet: {losses}, relative difference from numpy {difference:.0e}"
    return ok_if(difference < 1e-3, detail, **evidence)


def _losses(backend_name: str) -> list[float]:
    import numpy as np

    from phone_agent import models
    from phone_agent.backends import get_backend
    from phone_agent.contract.schema import OptimizerSpec
    from phone_agent.nn.packing import State
    from phone_agent.nn.plan.options import Options
    from phone_agent.train.optimizers import build_optimizer

    graph = models.build("lenet", 10, (SIDE, SIDE, 1))
    state = State(graph, 1)
    executable = get_backend(backend_name).compile(graph, state, BATCH, Options(threads=2))
    optimizer = build_optimizer(OptimizerSpec(learning_rate=0.01), state, backend=backend_name)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCH, SIDE, SIDE, 1)).astype(np.float32)
    labels = rng.integers(0, 10, BATCH).astype(np.int32)
    losses = []
    for step in range(1, STEPS + 1):
        losses.append(float(executable.loss_and_gradients(images, labels, 1.0)))
        optimizer.update(slice(None), 0.01, step)
    return losses


def mpi4py() -> CheckResult:
    """If the import fails, the evidence has the end of the build log, provided that this phone built mpi4py."""
    try:
        return ok(worker.check_mpi4py())
    except AgentError as error:
        return failed(str(error), build=read_tail(layout.local(BUILD_LOG))[-15:])


def mpirun() -> CheckResult:
    return ok(worker.check_ring())


def tmpdir() -> CheckResult:
    return ok(f"TMPDIR {worker.check_tmpdir()} is writable")
