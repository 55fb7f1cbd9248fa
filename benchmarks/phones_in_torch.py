# mypy: no-warn-return-any
"""A run as PyTorch trains it: the same first weights, samples in the same order, the same rules, phone by phone.

Started as a program, it is a contestant of `accuracy` (see peers.py).

Data-parallel training is not one process with a larger batch: every phone normalises by its own batch. So a step here
is one forward and backward for each phone, on replicas that share their weights and keep their own running statistics.
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
from phone_agent.data.sampling import order_of
from phone_agent.nn.packing import State
from phone_agent.train import schedules

JUDGED_AT_ONCE = 500
TOLD_EVERY = 50  # steps


class Phones:
    """All phones of a run in one process."""

    def __init__(self, spec: RunSpec, model: str, data: Path) -> None:
        self._spec = spec
        self._train, self._test = load(data, TRAIN), load(data, TEST)
        self._mean, self._deviation = _colours(self._train)
        graph = models.build(model, spec.data.classes, spec.data.input_shape)
        self._net = torch_net(graph, State(graph, spec.seed))
        self._replicas = [_replica(self._net).train() for _ in spec.ranks]
        self._orders = [order_of(spec, rank) for rank in range(len(spec.ranks))]
        self._criterion = nn.CrossEntropyLoss(label_smoothing=spec.optimizer.label_smoothing)
        self._optimizer = _sgd(self._net, spec)

    def step(self, step: int) -> float:
        """Counted from 1. The loss over all phones' images."""
        spec = self._spec
        for group in self._optimizer.param_groups:
            group["lr"] = schedules.learning_rate(spec.optimizer, spec.schedule, step, spec.steps)
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for rank, order, net in zip(spec.ranks, self._orders, self._replicas, strict=True):
            numbers, _ = order.taken(step - 1)
            images, labels = self._prepared(self._train, numbers)
            loss = self._criterion(net(images), labels) * (rank.batch / spec.global_batch)
            loss.backward()
            total += float(loss.detach())
        self._optimizer.step()
        return total

    def judge(self) -> dict[str, float]:
        """By what all phones' normalisations saw together."""
        samples = len(self._test.labels)
        parts = np.array_split(np.arange(samples), -(-samples // JUDGED_AT_ONCE))
        with torch.no_grad():
            self._combine_statistics()
            self._net.eval()
            right, loss = map(sum, zip(*map(self._mark, parts), strict=True))
        return {"top1": right / samples, "loss": loss / samples}

    def _mark(self, numbers: np.ndarray[Any, Any]) -> tuple[int, float]:
        images, labels = self._prepared(self._test, numbers)
        scores = self._net(images)
        right = int((scores.argmax(1) == labels).sum())
        return right, float(nn.functional.cross_entropy(scores, labels, reduction="sum"))

    def _combine_statistics(self) -> None:
        """The variance of all images: that within the phones' batches, and that between their means."""
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
    """`run` is a run.json. Evaluation as often as the run is."""
    torch.set_num_threads(threads)
    spec = RunSpec.from_json(run)
    phones = Phones(spec, model, Path(data))
    losses: list[float] = []
    judged: list[dict[str, float]] = []
    for step in range(1, spec.steps + 1):
        losses.append(phones.step(step))
        if step == spec.steps or (spec.eval_every and step % spec.eval_every == 0):
            judged.append({"step": step, **phones.judge()})
        if step % TOLD_EVERY == 0:
            print(f"PyTorch: step {step}/{spec.steps}  loss {losses[-1]:.4f}", file=sys.stderr)
    return {"losses": losses, "judged": judged}


def _colours(samples: Samples) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    over = (0, 1, 2)
    means = samples.images.mean(axis=over, dtype=np.float64), samples.images.std(axis=over, dtype=np.float64)
    return (means[0] / 255).astype(np.float32), (means[1] / 255).astype(np.float32)


def _replica(net: TorchNet) -> TorchNet:
    """Shares the weights, not the statistics."""
    return copy.deepcopy(net, {id(weight): weight for weight in net.parameters()})


def _norms(net: TorchNet) -> Iterator[Any]:
    return (module for module in net.modules() if isinstance(module, nn.BatchNorm2d))


def _sgd(net: TorchNet, spec: RunSpec) -> torch.optim.SGD:
    """Weights decay; biases and normalisations do not."""
    rules = spec.optimizer
    if rules.name not in {"sgd", "nesterov"}:
        raise ValueError(f"PyTorch has no {rules.name}: only runs with sgd or nesterov can be repeated")
    kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for weight in net.parameters():
        kinds[weight.ndim > 1 or rules.decay_all].append(weight)
    groups = [{"params": kinds[True], "weight_decay": rules.weight_decay}, {"params": kinds[False]}]
    return torch.optim.SGD(groups, lr=rules.learning_rate, momentum=rules.momentum, nesterov=rules.name == "nesterov")


if __name__ == "__main__":
    serve({"train": train})
