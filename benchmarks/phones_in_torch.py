# mypy: no-warn-return-any
"""Repeat a run in PyTorch, phone by phone: same initial weights, sample order, optimizer and schedule.

Run as a program, it is the PyTorch side of `accuracy` (see peers.py).

Data-parallel training differs from one process with a larger batch: every phone normalizes with its own batch. So a
step here is one forward and backward pass per phone, on replicas that share weights but not running statistics.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cifar import TEST, TRAIN, Samples, load
from benchmarks.peers import serve
from benchmarks.torch_peer import TorchNet, images_to_torch, torch_net
from phone_agent import models
from phone_agent.contract.schema import RunSpec
from phone_agent.data.sampling import sample_order
from phone_agent.nn.packing import State
from phone_agent.train import schedules

EVALUATION_BATCH = 500
LOG_EVERY = 50  # steps


class Phones:
    """All phones of a run in one process."""

    def __init__(self, spec: RunSpec, model: str, data: Path) -> None:
        self._spec = spec
        self._train, self._test = load(data, TRAIN), load(data, TEST)
        self._mean, self._deviation = _channel_statistics(self._train)
        graph = models.build(model, spec.data.classes, spec.data.input_shape)
        self._net = torch_net(graph, State(graph, spec.seed))
        self._replicas = [_replica(self._net).train() for _ in spec.ranks]
        self._orders = [sample_order(spec, rank) for rank in range(len(spec.ranks))]
        self._criterion = nn.CrossEntropyLoss(label_smoothing=spec.optimizer.label_smoothing)
        self._optimizer = _sgd(self._net, spec)

    def step(self, step: int) -> float:
        """Run one step, counted from 1, and return the loss over the global batch."""
        spec = self._spec
        for group in self._optimizer.param_groups:
            group["lr"] = schedules.learning_rate(spec.optimizer, spec.schedule, step, spec.steps)
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for rank, order, net in zip(spec.ranks, self._orders, self._replicas, strict=True):
            numbers, _ = order.samples_at(step - 1)
            images, labels = self._prepared(self._train, numbers)
            loss = self._criterion(net(images), labels) * (rank.batch / spec.global_batch)
            loss.backward()
            total += float(loss.detach())
        self._optimizer.step()
        return total

    def evaluate(self) -> dict[str, float]:
        """Accuracy and loss on the test set, with the combined normalization statistics of all phones."""
        samples = len(self._test.labels)
        parts = np.array_split(np.arange(samples), -(-samples // EVALUATION_BATCH))
        with torch.no_grad():
            self._combine_statistics()
            self._net.eval()
            right, loss = map(sum, zip(*map(self._evaluate_batch, parts), strict=True))
        return {"top1": right / samples, "loss": loss / samples}

    def _evaluate_batch(self, numbers: np.ndarray[Any, Any]) -> tuple[int, float]:
        images, labels = self._prepared(self._test, numbers)
        scores = self._net(images)
        right = int((scores.argmax(1) == labels).sum())
        return right, float(nn.functional.cross_entropy(scores, labels, reduction="sum"))

    def _combine_statistics(self) -> None:
        """Total variance: the variance within the batches of the phones plus the variance between their means."""
        weights = [rank.batch / self._spec.global_batch for rank in self._spec.ranks]
        for norm, *of_phones in zip(_norms(self._net), *map(_norms, self._replicas), strict=True):
            parts = list(zip(weights, of_phones, strict=True))
            mean: Tensor = sum(weight * part.running_mean for weight, part in parts)
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(
                sum(weight * (part.running_var + (part.running_mean - mean) ** 2) for weight, part in parts)
            )

    def _prepared(self, samples: Samples, numbers: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        images = (samples.images[numbers] / np.float32(255) - self._mean) / self._deviation
        return images_to_torch(images), torch.from_numpy(samples.labels[numbers].astype(np.int64))


def train(run: str, model: str, data: str, threads: int) -> dict[str, Any]:
    """Train as `run`, the text of a run.json, specifies, and evaluate at the same steps."""
    torch.set_num_threads(threads)
    spec = RunSpec.from_json(run)
    phones = Phones(spec, model, Path(data))
    losses: list[float] = []
    evaluations: list[dict[str, float]] = []
    for step in range(1, spec.steps + 1):
        losses.append(phones.step(step))
        if step == spec.steps or (spec.eval_every and step % spec.eval_every == 0):
            evaluations.append({"step": step, **phones.evaluate()})
        if step % LOG_EVERY == 0:
            print(f"PyTorch: step {step}/{spec.steps}  loss {losses[-1]:.4f}", file=sys.stderr)
    return {"losses": losses, "evaluations": evaluations}


def _channel_statistics(samples: Samples) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    over = (0, 1, 2)
    means = samples.images.mean(axis=over, dtype=np.float64), samples.images.std(axis=over, dtype=np.float64)
    return (means[0] / 255).astype(np.float32), (means[1] / 255).astype(np.float32)


def _replica(net: TorchNet) -> TorchNet:
    """A copy that shares the weights, but not the running statistics."""
    return copy.deepcopy(net, {id(weight): weight for weight in net.parameters()})


def _norms(net: TorchNet) -> Iterator[Any]:
    return (module for module in net.modules() if isinstance(module, nn.BatchNorm2d))


def _sgd(net: TorchNet, spec: RunSpec) -> torch.optim.SGD:
    """Weight decay applies to weights, not to biases and normalization parameters."""
    rules = spec.optimizer
    if rules.name not in {"sgd", "nesterov"}:
        raise ValueError(f"PyTorch cannot repeat a run with {rules.name}: only sgd and nesterov are supported")
    kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for weight in net.parameters():
        kinds[weight.ndim > 1 or rules.decay_all].append(weight)
    groups = [{"params": kinds[True], "weight_decay": rules.weight_decay}, {"params": kinds[False]}]
    return torch.optim.SGD(groups, lr=rules.learning_rate, momentum=rules.momentum, nesterov=rules.name == "nesterov")


if __name__ == "__main__":
    serve({"train": train})
