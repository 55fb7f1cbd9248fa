"""Every op on every shape, with what must come out. Variants (how it is read, how finished) go round the shapes."""

from __future__ import annotations

from phone_agent.core.ops import Kind
from tests.phone_agent.core import (
    conv_cases,
    dgemm_cases,
    dropout_cases,
    eliminate_cases,
    join_cases,
    loss_cases,
    lowrank_cases,
    lrn_cases,
    norm_cases,
    pool_cases,
    update_cases,
    wire_cases,
)
from tests.phone_agent.core.augment_cases import augments
from tests.phone_agent.core.pieces import Cases

_every = conv_cases.every

CASES: dict[Kind, Cases] = {
    **conv_cases.KINDS,
    **pool_cases.KINDS,
    **norm_cases.KINDS,
    **join_cases.KINDS,
    **lrn_cases.KINDS,
    **dropout_cases.KINDS,
    **loss_cases.KINDS,
    Kind.OPTIMIZER_UPDATE: update_cases.updates,
    Kind.ENCODE: wire_cases.encodes,
    Kind.DECODE: wire_cases.decodes,
    **lowrank_cases.KINDS,
    Kind.AUGMENT: augments,
    Kind.DGEMM: dgemm_cases.products,
    Kind.ELIMINATE: eliminate_cases.columns,
}
