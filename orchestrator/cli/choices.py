"""The values that flags accept, so that help and completion show them.

Those of `launch` are in phone_agent.contract.choices. These are spelled out because importing the code that uses them
would slow down every command; a test compares the two.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

AllreduceAlgorithm = Literal["ring", "hierarchical", "mpi", "chunkwise"]
Arch = Literal["native", "aarch64"]
BuildTarget = Literal["host", "aarch64-android"]
ComputeBackend = Literal["cpu", "reference"]
ExportFormat = Literal["onnx", "safetensors"]
ForecastAlgorithm = Literal["auto", "ring", "hierarchical"]
ForecastWire = Literal["auto", "fp32", "fp16", "bf16", "int8"]
InstructionSet = Literal["avx512", "avx2", "sse2", "neon-fp16", "neon"]
PlannedBackend = Literal["cpu", "opencl", "hybrid"]
PowerState = Literal["on", "off"]
RankOrder = Literal["ring", "interleaved"]
Wire = Literal["fp32", "fp16", "bf16", "int8"]


# Typer repeats a flag only for enums, not for literals.
class StudyPart(StrEnum):
    MODELS = "models"
    SWEEP = "sweep"
    OPERATIONS = "operations"
    POWER = "power"
    FOREGROUND = "foreground"


class StudyModel(StrEnum):
    MENTEE = "mentee"
    MOBILENET_REDUCED = "mobilenet_reduced"
    RESNET_REDUCED = "resnet_reduced"


class StudyBackend(StrEnum):
    CPU = "cpu"
    OPENCL = "opencl"


class Fault(StrEnum):
    RANK_KILLED = "rank killed"
    RANK_FROZEN = "rank frozen"
    POWER_OFF = "power off"
    CABLE_OUT = "cable out"
    HEAD_DIES = "head dies"
    HOSTILE_HEAD = "hostile head"
    HOST_DIES = "host dies"
    HOST_REBOOT = "host reboot"
    SSHD_KILLED = "sshd killed"
    CABLE_FLAPPING = "cable flapping"
    SLOW_LINK = "slow link"
    CORRUPTION = "corruption"
    DISK_FULL = "disk full"
    MEMORY_LIMIT = "memory limit"
    CLOCK_JUMP = "clock jump"
    PHANTOM_REAPER = "phantom reaper"
    THROTTLING = "throttling"
    OLD_HOLDER_RETURNS = "old holder returns"
    HOLDER_EXCLUDED = "holder excluded"
    REJOIN_FAILS = "rejoin fails"
    KILLED_DURING_RESUME = "killed during resume"
    SLOW_FIRST_STEP = "slow first step"
    TWO_AT_ONCE = "two at once"
