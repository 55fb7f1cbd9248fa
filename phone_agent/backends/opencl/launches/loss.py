"""Softmax and cross-entropy."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, LocalMemory
from phone_agent.backends.opencl.launches.operands import float_field, int_field, pointer_field
from phone_agent.nn.plan.ops import FLOAT, OpSpec

GROUP = 64


def softmax_loss(step: OpSpec, make: LaunchBuilder) -> list[Launch]:
    of = step.fields
    batch, losses = int_field(of, "batch"), make.scratch(int_field(of, "batch"))
    places = [pointer_field(of, name) for name in ("logits", "labels", "weight", "dlogits")]
    numbers = [int_field(of, name) for name in ("batch", "classes", "ld_logits", "ld_dlogits")]
    kernel = make.kernel("softmax_loss", "softmax_cross_entropy")
    arguments = (*places, losses, *numbers, float_field(of, "smoothing"), LocalMemory(GROUP * FLOAT))
    return [
        make.launch(kernel, arguments, (batch * GROUP,), (GROUP,)),
        make.over(make.kernel("softmax_loss", "mean_loss"), (losses, pointer_field(of, "loss"), batch), 1, 1),
    ]
