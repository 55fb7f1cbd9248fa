"""Backends by name. Their interface is defined in nn.executable."""

from __future__ import annotations

from phone_agent.contract.choices import BACKENDS
from phone_agent.contract.errors import BadRequestError
from phone_agent.nn.executable import Backend


def get_backend(name: str) -> Backend:
    if name == "cpu":
        from phone_agent.backends.cpu import CpuBackend

        return CpuBackend()
    if name == "opencl":
        from phone_agent.backends.opencl.backend import OpenClBackend

        return OpenClBackend()
    if name == "hybrid":
        from phone_agent.backends.hybrid import HybridBackend

        return HybridBackend(get_backend("cpu"), get_backend("opencl"))
    if name == "reference":
        from phone_agent.backends.reference import ReferenceBackend

        return ReferenceBackend()
    raise BadRequestError(f"unknown backend '{name}'; choose from: {', '.join(BACKENDS)}")
