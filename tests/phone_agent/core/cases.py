"""Every op on every shape, with the expected results. Variants of input and epilogue rotate over the shapes."""

from __future__ import annotations

from phone_agent.core.ops import Kind
from tests.phone_agent.core import (
    add_cases,
    batch_norm_cases,
    conv_cases,
    dgemm_cases,
    dropout_cases,
    eliminate_cases,
    lowrank_cases,
    lrn_cases,
    optimizer_cases,
    pooling_cases,
    softmax_loss_cases,
    wire_cases,
)
from tests.phone_agent.core.augment_cases import augments
from tests.phone_agent.core.operands import Cases

_every = conv_cases.every

CASES: dict[Kind, Cases] = {
    **conv_cases.KINDS,
    **pooling_cases.KINDS,
    **batch_norm_cases.KINDS,
    **add_cases.KINDS,
    **lrn_cases.KINDS,
    **dropout_cases.KINDS,
    **softmax_loss_cases.KINDS,
    Kind.OPTIMIZER_UPDATE: optimizer_cases.updates,
    Kind.ENCODE: wire_cases.encodes,
    Kind.DECODE: wire_cases.decodes,
    **lowrank_cases.KINDS,
    Kind.AUGMENT: augments,
    Kind.DGEMM: dgemm_cases.products,
    Kind.ELIMINATE: eliminate_cases.columns,
}
