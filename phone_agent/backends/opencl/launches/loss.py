"""Softmax and cross-entropy."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, Local, Maker
from phone_agent.backends.opencl.launches.operands import number, place, whole
from phone_agent.nn.plan.ops import FLOAT, Step

GROUP = 64


def softmax_loss(step: Step, make: Maker) -> list[Launch]:
    of = step.fields
    batch, losses = whole(of, "batch"), make.scratch(whole(of, "batch"))
    places = [place(of, name) for name in ("logits", "labels", "weight", "dlogits")]
    numbers = [whole(of, name) for name in ("batch", "classes", "ld_logits", "ld_dlogits")]
    kernel = make.kernel("loss", "image_losses")
    arguments = (*places, losses, *numbers, number(of, "smoothing"), Local(GROUP * FLOAT))
    return [
        make.launch(kernel, arguments, (batch * GROUP,), (GROUP,)),
        make.over(make.kernel("loss", "mean_loss"), (losses, place(of, "loss"), batch), 1, 1),
    ]
