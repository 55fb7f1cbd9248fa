"""The flags of `clusterctl launch`: one per option of a LaunchRequest, with its help text and panel.

Names come from orchestrator.launch.request, types from its fields, defaults from orchestrator.launch.defaults.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from orchestrator.cli.help import EXPERT
from orchestrator.cli.options import complete_limit, complete_model, complete_recipe
from orchestrator.launch.defaults import DEFAULTS, DESCRIPTIONS
from orchestrator.launch.request import LaunchRequest, flag_names, make_request
from phone_agent.contract.choices import AUTO, MAX_THREADS


def _parse_batch(text: str) -> int | str:
    if text == AUTO:
        return AUTO
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"'{text}' is neither a positive integer nor auto")
    return int(text)


def _parse_interval(text: str) -> int | timedelta:
    """Steps, or a time with a unit."""
    if not (match := _INTERVAL.fullmatch(text.strip())):
        raise typer.BadParameter(f"'{text}' is neither a number of steps nor a time such as 90s, 30min or 2h")
    number, unit = match.groups()
    if unit is None:
        return int(number)
    interval = timedelta(**{_TIME_UNITS[unit]: int(number)})
    if not timedelta(0) < interval <= _LONGEST_INTERVAL:
        raise typer.BadParameter(f"'{text}' is not between 1s and {_LONGEST_INTERVAL.days * 24}h")
    return interval


def _parse_bytes(text: str) -> int:
    from phone_agent.contract.errors import BadRequestError
    from phone_agent.contract.sizes import parse_bytes

    try:
        return parse_bytes(text)
    except BadRequestError as error:
        raise typer.BadParameter(str(error)) from None


_TIME_UNITS = {"s": "seconds", "min": "minutes", "h": "hours"}
_INTERVAL = re.compile(r"([0-9]{1,9})(s|min|h)?")
_LONGEST_INTERVAL = timedelta(days=7)
_COUNT: dict[str, Any] = {"min": 0, "metavar": "N"}
_POSITIVE: dict[str, Any] = {"min": 1, "metavar": "N"}
_FRACTION: dict[str, Any] = {"min": 0.0, "max": 1.0, "metavar": "X"}
_AMOUNT: dict[str, Any] = {"min": 0.0, "metavar": "X"}
_SIZE: dict[str, Any] = {"parser": _parse_bytes, "metavar": "SIZE"}

# Help panel -> option -> help text and settings of its flag. Defaults are appended to the help texts.
PANELS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "Model and data": {
        "model": (
            "Model: a name from `clusterctl models list`, or FILE.py:FUNCTION.",
            {"autocompletion": complete_model, "metavar": "NAME"},
        ),
        "recipe": (
            "Published training recipe: sets model, batch, optimizer and schedule. Explicit flags override the recipe.",
            {"autocompletion": complete_recipe, "metavar": "NAME"},
        ),
        "data.source": (
            (
                "Training data: a name from `clusterctl data list`, a directory, synthetic (random images), or auto "
                "(Fashion-MNIST if installed and the model takes 28x28 images, else random images)."
            ),
            {"metavar": "NAME|DIRECTORY"},
        ),
        "data.augment": (
            (
                "Data augmentation. flip: random horizontal flips; cifar: flips and shifted crops; imagenet: flips, "
                "resized crops and color jitter."
            ),
            {},
        ),
        "batch": (
            "Batch size per phone. auto: as large as memory allows.",
            {"parser": _parse_batch, "metavar": "N|auto"},
        ),
        "global_batch": ("Total batch size across all phones, instead of --batch.", _POSITIVE),
        "steps": ("Number of training steps.", _POSITIVE),
        "epochs": ("Number of passes over the data, instead of --steps.", {"min": 0.001, "metavar": "X"}),
        "eval_every": ("Evaluate every N steps.", _COUNT),
        "weights": ("Initial weights: a checkpoint, safetensors or .npz file.", {"metavar": "FILE"}),
        "new_head": ("With --weights: reinitialize the last layer, or keep it.", {}),
        "freeze": ("Layers to freeze (not train): a name or a pattern. Repeatable.", {"metavar": "LAYER"}),
        "seed": ("Random seed for weights and image order.", {"min": 0, "max": 2**31 - 1, "metavar": "N"}),
    },
    "Optimizer": {
        "optimizer.name": ("Optimizer.", {}),
        "optimizer.learning_rate": ("Peak learning rate. Required for lars and lamb.", _AMOUNT),
        "optimizer.momentum": ("Momentum (LAMB: beta1).", _FRACTION),
        "optimizer.weight_decay": ("Weight decay.", _AMOUNT),
        "optimizer.label_smoothing": ("Label smoothing factor.", _FRACTION),
    },
    "Schedule": {
        "schedule.policy": ("Learning rate schedule.", {}),
        "schedule.warmup_steps": ("Linear warm-up over N steps.", _COUNT),
        "schedule.warmup_epochs": ("Linear warm-up over X epochs.", _AMOUNT),
        "schedule.decay_steps": ("With --schedule step: decay every N steps.", _COUNT),
        "schedule.decay_epochs": ("With --schedule step: decay every X epochs.", _AMOUNT),
        "schedule.gamma": ("With --schedule step: decay factor.", _FRACTION),
        "schedule.min_lr_ratio": (
            "With --schedule polynomial or cosine: final learning rate, as a fraction of --lr.",
            _FRACTION,
        ),
    },
    "Communication": {
        "communication.algorithm": (
            (
                "Allreduce algorithm. hierarchical: rings within and across switches; mpi: MPI_Allreduce; chunkwise: "
                "one MPI_Allreduce per parameter; auto: ring or hierarchical, chosen by a link probe."
            ),
            {},
        ),
        "communication.wire": (
            (
                "Gradient wire format. powersgd: low-rank compression; auto: fp32, or fp16 if a link probe predicts "
                "that it is clearly faster."
            ),
            {},
        ),
        "communication.local_steps": ("Steps between synchronizations (local SGD), for slow links.", _POSITIVE),
        "data.replicated": ("Put all images on every phone, or a different shard on each.", {}),
    },
    "Compute": {
        "compute.backend": (
            (
                "Compute backend. opencl: GPU; hybrid: CPU and GPU split each batch; reference: numpy, slow; auto: the "
                "fastest measured by `clusterctl tune`, or cpu if not tuned."
            ),
            {},
        ),
        "compute.threads": ("Threads per phone.", {"min": 0, "max": MAX_THREADS, "metavar": "N"}),
        "compute.memory_bytes": ("Memory limit per phone, such as 2.8GB.", _SIZE),
        "compute.activations": (
            "Storage format for activations. fp16 nearly doubles the batch that fits in memory.",
            {},
        ),
    },
    "Recovery": {
        "recovery.checkpoint_every": (
            "Write a checkpoint every N steps, or after a time such as 30min or 2h. 0: only at the end.",
            {"parser": _parse_interval, "metavar": "N|TIME"},
        ),
        "recovery.spares": (
            "Spare phones that replace failed ones, selected as in --limit.",
            {"autocompletion": complete_limit, "metavar": "SELECTOR"},
        ),
        "recovery.min_phones": ("Wait for phones if fewer than this are left.", _POSITIVE),
        "recovery.max_restarts": ("Maximum number of restarts after failures.", _COUNT),
        "data.on_corrupt": ("On corrupt images: fail, or skip them.", {}),
    },
    EXPERT: {
        "optimizer.decay_all": ("Apply weight decay to biases and normalization parameters as well.", {}),
        "optimizer.beta2": ("LAMB beta2.", _FRACTION),
        "optimizer.epsilon": ("LAMB epsilon.", _AMOUNT),
        "optimizer.lars_coefficient": ("LARS trust coefficient.", _AMOUNT),
        "schedule.power": ("With --schedule polynomial: exponent.", _AMOUNT),
        "communication.overlap": ("Send gradients while the backward pass is running.", {}),
        "communication.bucket_bytes": ("Gradient bucket size, such as 4MB.", _SIZE),
        "communication.group_size": ("With --algorithm hierarchical: maximum number of phones per group.", _COUNT),
        "communication.outer_learning_rate": ("With --local-steps: outer learning rate. 1: plain averaging.", _AMOUNT),
        "communication.outer_momentum": ("With --local-steps: outer momentum (DiLoCo uses 0.9).", _FRACTION),
        "compute.micro_batch": ("Images processed at a time on each phone.", _COUNT),
        "compute.load_balancing": (
            "Load balancing. auto: move images from slow or hot phones to others; off: keep batch sizes fixed.",
            {},
        ),
    },
}


def with_request(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the first parameter of a command, a LaunchRequest, by one flag per option."""
    options = {path: (panel, *flag) for panel, flags in PANELS.items() for path, flag in flags.items()}
    parameters = {path: path.replace(".", "_") for path in options}
    flags = [
        inspect.Parameter(
            parameters[path],
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_type_of(path), _option(path, panel, text, settings)],
        )
        for path, (panel, text, settings) in options.items()
    ]
    _, *others = inspect.signature(command, eval_str=True).parameters.values()
    rest = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others]
    expert = [each for each in flags if each.annotation.__metadata__[0].rich_help_panel == EXPERT]
    usual = [each for each in flags if each not in expert]

    @wraps(command)
    def wrapped(**arguments: Any) -> None:
        values = {path: arguments.pop(parameter) for path, parameter in parameters.items()}
        given = {path: value for path, value in values.items() if value is not None}
        if "freeze" in given:
            given["freeze"] = tuple(given["freeze"])
        command(make_request(given), **arguments)

    wrapped.__signature__ = inspect.Signature([*usual, *rest, *expert])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in (*flags, *rest)}
    return wrapped


def _option(path: str, panel: str, text: str, settings: dict[str, Any]) -> Any:
    name = "/".join(flag_names(path))
    return typer.Option(name, help=text + _default(path), rich_help_panel=panel, **settings)


def _default(path: str) -> str:
    value = DESCRIPTIONS.get(path, DEFAULTS.get(path))
    if value is None or value is False or value in {"", ()}:
        return ""
    if value is True:
        return " Default: on."
    return f" Default: {value:g}." if isinstance(value, float) else f" Default: {value}."


def _type_of(path: str) -> Any:
    if path == "freeze":
        return list[str] | None
    if path in {"batch", "recovery.checkpoint_every"}:
        return str | None  # the parser decides
    group, _, name = path.rpartition(".")
    holder = get_type_hints(LaunchRequest)[group] if group else LaunchRequest
    return get_type_hints(holder)[name]
