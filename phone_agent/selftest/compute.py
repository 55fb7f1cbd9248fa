"""The compute core on this processor, and the training that rests on it."""

from __future__ import annotations

import os

from phone_agent.contract import layout
from phone_agent.contract.assumptions import Found, Status, failed, judged, ok
from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import read_tail
from phone_agent.selftest import worker
from phone_agent.selftest.bounded import bounded

ISA_S = 120.0
BUILD_LOG = layout.ROOT / "jobs" / "build-mpi4py.log"  # by provisioning/scripts/job.sh
STEPS, BATCH, SIDE = 6, 8, 28


def numpy() -> Found:
    return ok(worker.check_numpy())


def core() -> Found:
    """Loaded and tried in a process of its own."""
    return ok(f"kernels for {worker.check_core()}")


def kernels() -> Found:
    """Set by set: one that this processor does not have after all must not hide the others."""
    found = {isa: bounded(lambda isa=isa: _one_set(isa), ISA_S) for isa in worker.check_core().split(", ")}  # type: ignore[misc]
    wrong = [f"{isa}: {each.told}" for isa, each in found.items() if each.status is not Status.OK]
    told = "; ".join(wrong) or f"all kernels agree with numpy: {', '.join(found)}"
    return judged(not wrong, told, **{isa: each.evidence or each.told for isa, each in found.items()})


def _one_set(isa: str) -> Found:
    os.environ["CLUSTERCTL_ISA"] = isa  # for what chooses its kernels itself
    from phone_agent.selftest.kernels import errors

    found = errors(isa)
    wrong = [f"{name} is wrong by {error:.1e}" for name, (error, bound) in found.items() if not error <= bound]
    return judged(not wrong, "; ".join(wrong), **{name: f"{error:.1e}" for name, (error, _) in found.items()})


def training() -> Found:
    """LeNet, by the core and by numpy, on the same few images: the losses must be the same, and fall."""
    core_losses, right = _losses("cpu"), _losses("reference")
    apart = max(abs(ours - theirs) / theirs for ours, theirs in zip(core_losses, right, strict=True))
    evidence = {"core": core_losses, "numpy": right}
    if not core_losses[-1] < core_losses[0]:
        return failed(f"the loss does not fall: {core_losses[0]:.4f} to {core_losses[-1]:.4f}", **evidence)
    told = f"{STEPS} steps of LeNet: loss {core_losses[0]:.4f} to {core_losses[-1]:.4f}, numpy's to {apart:.0e}"
    return judged(apart < 1e-3, told, **evidence)


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
    numbers = np.random.default_rng(0)
    images = numbers.standard_normal((BATCH, SIDE, SIDE, 1)).astype(np.float32)
    labels = numbers.integers(0, 10, BATCH).astype(np.int32)
    losses = []
    for step in range(1, STEPS + 1):
        losses.append(float(executable.loss_and_gradients(images, labels, 1.0)))
        optimizer.update(slice(None), 0.01, step)
    return losses


def mpi4py() -> Found:
    """Where it is not there, the end of what its build said here, if this phone built it."""
    try:
        return ok(worker.check_mpi4py())
    except AgentError as error:
        return failed(str(error), build=read_tail(layout.local(BUILD_LOG))[-15:])


def mpirun() -> Found:
    return ok(worker.check_ring())


def tmpdir() -> Found:
    return ok(f"TMPDIR {worker.check_tmpdir()} can be written")
