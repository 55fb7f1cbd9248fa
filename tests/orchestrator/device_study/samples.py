"""A study of two made-up devices, with everything a report has to show."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.device_study.result import DeviceStudy, Study
from phone_agent.contract.device_study import (
    DEPTHS,
    EQUAL_PRIORITY,
    FOREGROUND_ALONE,
    MODELS,
    PROFILED,
    TRAINING_ALONE,
    TRAINING_LOW_PRIORITY,
    WIDTHS,
    Case,
    Facts,
    Interference,
    Load,
    Operation,
    Row,
    Sample,
    StudyRequest,
    network_name,
)
from phone_agent.device_study import networks

HOSTILE = '<script>alert("gotcha")</script>\x1b[31m'
NO_DEVICE = "OpenCL has no device here; install a driver"
FACTS = Facts(
    "SM-G975F", "Kryo 485", "Android 12", "aarch64", 8, 4, "neon-fp16", 2841, 5_600_000_000, 2_800_000_000, None,
    NO_DEVICE,
)  # fmt: skip


def case(family: str, width: int, depth: int, seconds: float, *, backend: str = "cpu", batch: int = 128) -> Case:
    graph = networks.build(family, width, depth)
    return Case(
        family, graph.name, width, depth, backend, graph.parameter_count, 1000, 3000, 128, 10**8,
        batch=batch, training_s=seconds * batch / 128, inference_s=seconds * batch / 384, runs=2, resident_bytes=10**8,
    )  # fmt: skip


def sweep() -> list[Case]:
    """Dense layers take 1 ms for every 64 of width and every layer; convolutions 100 times, separable ones 50 times."""
    found = []
    for family, cost in (("fc", 1.0), ("conv", 100.0), ("separable", 50.0)):
        for depth in DEPTHS:
            for width in WIDTHS:
                made = case(family, width, depth, 1e-3 * cost * depth * width / 64, batch=16 if width > 128 else 128)
                found.append(made if (width, depth) != (512, 8) or family != "conv" else without_memory(made))
    return found


def without_memory(made: Case) -> Case:
    why = "predicted to run out of memory: needs 4.13 GB, the budget is 2.80 GB"
    return replace(
        made, batch=None, training_s=None, inference_s=None, runs=0, resident_bytes=None, why=why, code="out_of_memory"
    )


def rows() -> tuple[Row, ...]:
    models = [
        replace(case("conv", 64, 1, 0.5 * number, backend="cpu"), family="model", name=name, width=0, depth=0)
        for number, name in enumerate(MODELS, start=1)
    ]
    lacking = [
        replace(
            each,
            backend="opencl",
            batch=None,
            training_s=None,
            inference_s=None,
            why=NO_DEVICE,
            code="no_opencl_device",
        )
        for each in models
    ]
    operations = [
        Operation(network_name(*PROFILED), "cpu", 32, kind, direction, seconds, 10**9)
        for kind, direction, seconds in (
            ("conv_forward", "forward", 0.030), ("conv_backward_weights", "backward", 0.035),
            ("conv_backward_data", "backward", 0.028), ("pooling_backward", "backward", 0.007),
        )
    ]  # fmt: skip
    loads = [
        Load("rest", "", "", 5.0, 0.01, 40_000_000, 0.45, -0.11, 4.1, "UNPLUGGED", 31.0, 1200.0),
        Load("inference", "mentee", "cpu", 5.0, 3.1, 300_000_000, 4.6, -1.13, 4.05, "UNPLUGGED", 44.0, 2700.0),
        Load("training", "mentee", "cpu", 5.0, 3.6, 400_000_000, 5.9, -1.46, 4.02, "UNPLUGGED", 51.0, 2650.0),
    ]
    interference = [
        Interference(FOREGROUND_ALONE, "mobilenet_reduced", 800.0, None),
        Interference(TRAINING_ALONE, "mobilenet_reduced", None, 0.1),
        Interference(TRAINING_LOW_PRIORITY, "mobilenet_reduced", 720.0, 0.35),
        Interference(EQUAL_PRIORITY, "mobilenet_reduced", 400.0, 0.2),
    ]
    samples = [
        Sample(
            "mobilenet_reduced", "cpu", 64, 10.0 * at, 0.100 * (1 + at / 100), 35.0 + at, "cpu-1", 2800.0 - 10 * at, 5.0
        )
        for at in range(1, 41)
    ]
    return (FACTS, *models, *lacking, *sweep(), *operations, *loads, *interference, *samples)


def study() -> Study:
    other = replace(FACTS, model=HOSTILE, opencl="QUALCOMM Adreno(TM), QUALCOMM Snapdragon(TM) (gpu)", why_no_opencl="")
    devices = (
        DeviceStudy("p1", "sw1:1", virtual=False, rows=rows()),
        DeviceStudy("p2", "sw1:2", virtual=True, rows=(other, *sweep()), error=f"connection lost {HOSTILE}"),
    )
    return Study(StudyRequest(thermal_minutes=6.0), devices, 1_700_000_000.0, "0.1.0")
