"""Softmax cross-entropy loss."""

from __future__ import annotations

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder, LocalMemory
from phone_agent.backends.opencl.launches.operands import float_field, int_field, pointer_field
from phone_agent.nn.plan.ops import FLOAT, OpSpec

GROUP = 64


def softmax_loss(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of = op.fields
    batch, losses = int_field(of, "batch"), builder.scratch(int_field(of, "batch"))
    pointers = [pointer_field(of, name) for name in ("logits", "labels", "weight", "dlogits")]
    numbers = [int_field(of, name) for name in ("batch", "classes", "ld_logits", "ld_dlogits")]
    kernel = builder.kernel("softmax_loss", "softmax_cross_entropy")
    arguments = (*pointers, losses, *numbers, float_field(of, "smoothing"), LocalMemory(GROUP * FLOAT))
    return [
        builder.launch(kernel, arguments, (batch * GROUP,), (GROUP,)),
        builder.launch_1d(
            builder.kernel("softmax_loss", "mean_loss"), (losses, pointer_field(of, "loss"), batch), 1, 1
        ),
    ]
