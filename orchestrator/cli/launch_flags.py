"""The flags of `clusterctl launch`: names, types and defaults are a LaunchRequest's; here is what help says of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from orchestrator.cli.completion import complete_backend, complete_model, complete_recipe
from orchestrator.launch.request import AUTO, LaunchRequest, Span
from phone_agent.contract.choices import MAX_THREADS

_FROM_0: dict[str, Any] = {"min": 0, "show_default": False}
_FROM_1: dict[str, Any] = {"min": 1, "show_default": False}
_PART: dict[str, Any] = {"min": 0.0, "max": 1.0, "show_default": False}
_AMOUNT: dict[str, Any] = {"min": 0.0, "show_default": False}


_SIZES = ("bucket_bytes", "memory_bytes")


def _batch(text: str) -> int:
    if text == "auto":
        return AUTO
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"'{text}' is neither a number of images from 1 on, nor auto")
    return int(text)


def _span(text: str) -> Span:
    """'500' steps, '5e' epochs."""
    number, epochs = text.removesuffix("e"), text.endswith("e")
    try:
        span = Span(float(number) if epochs else int(number), epochs)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is neither a number of steps (500) nor of epochs (5e)") from None
    if span.count < 0:
        raise typer.BadParameter(f"'{text}' is less than nothing")
    return span


def _bytes(text: str) -> int:
    from phone_agent.contract.sizes import SizeError, parse_bytes

    try:
        return parse_bytes(text)
    except SizeError as error:
        raise typer.BadParameter(str(error)) from None


def _panel(title: str, **options: Any) -> dict[str, Any]:
    for option in options.values():
        option.rich_help_panel = title
    return options


_NETWORK = _panel(
    "Network",
    model=typer.Option(
        help="Which network: see clusterctl models list; or FILE.py:FUNCTION. Default: lenet.",
        autocompletion=complete_model,
        show_default=False,
    ),
    weights=typer.Option(help="Start from these: a checkpoint, safetensors or .npz.", show_default=False),
    new_head=typer.Option(
        "--new-head/--keep-head",
        help="With --weights: last layer anew, or as given. Default: anew where classes have other names or numbers.",
        show_default=False,
    ),
    freeze=typer.Option(help="Layers that do not learn: a name or pattern. Repeatable.", show_default=False),
)
_AMOUNTS = _panel(
    "How much",
    steps=typer.Option(help="How many steps. Default: 200.", **_FROM_1),
    epochs=typer.Option(help="Instead: how often through the data.", min=0.001, show_default=False),
    batch=typer.Option(
        help="Images a phone and step; auto: as many as its memory holds. Default: 32.",
        parser=_batch,
        metavar="N|auto",
        show_default=False,
    ),
    global_batch=typer.Option(help="Instead: images a step in all.", **_FROM_1),
    micro_batch=typer.Option(help="Images a phone computes at once. Default: all, or as many as fit.", **_FROM_0),
    augment=typer.Option(help="How images are varied: none, flip, cifar or imagenet.", show_default=False),
    on_corrupt=typer.Option(help="Corrupt samples: fail or skip.", show_default=False),
    seed=typer.Option(help="Decides first weights and order of samples.", min=0, max=2**31 - 1),
    evaluate_every=typer.Option(help="Judge on held-out images each so many steps. Default: at the end.", **_FROM_0),
    checkpoint_every=typer.Option(help="Write a checkpoint each so many steps. Default: at the end.", **_FROM_0),
)
_LEARNING = _panel(
    "Learning",
    recipe=typer.Option(
        help="All of this, and model and batch, as published; other flags go before it.",
        autocompletion=complete_recipe,
        show_default=False,
    ),
    optimizer=typer.Option(help="sgd, nesterov, lars or lamb. Default: sgd.", show_default=False),
    learning_rate=typer.Option(
        "--lr", help="Learning rate at its highest. Default: 0.02; lars and lamb have none.", **_AMOUNT
    ),
    momentum=typer.Option(help="Default: 0.9.", **_PART),
    weight_decay=typer.Option(help="Default: 0.", **_AMOUNT),
    decay_all=typer.Option("--decay-all", help="Let biases and normalisations decay as well.", show_default=False),
    trust=typer.Option(help="LARS's coefficient. Default: 0.001.", **_AMOUNT),
    second_momentum=typer.Option(help="LAMB's second. Default: 0.999.", **_PART),
    epsilon=typer.Option(help="LAMB's. Default: 1e-6.", **_AMOUNT),
    label_smoothing=typer.Option(help="Part of the truth that is all classes alike. Default: 0.", **_PART),
    schedule=typer.Option(help="constant, step, polynomial or cosine. Default: constant.", show_default=False),
    warmup=typer.Option(
        help="Rise to the learning rate over so many steps, or epochs (5e).",
        parser=_span,
        metavar="N|Ne",
        show_default=False,
    ),
    step_every=typer.Option(
        help="Schedule step: times --gamma each so many steps, or epochs (30e).",
        parser=_span,
        metavar="N|Ne",
        show_default=False,
    ),
    gamma=typer.Option(help="Schedule step's factor. Default: 0.1.", **_PART),
    power=typer.Option(help="Schedule polynomial's. Default: 1.", **_AMOUNT),
    floor=typer.Option(help="Part of --lr that polynomial and cosine end at. Default: 0.", **_PART),
)
_TALKING = _panel(
    "Between phones",
    algorithm=typer.Option(help="How gradients are summed: ring, hierarchical, mpi, chunkwise; auto: by measurement."),
    group=typer.Option(
        help="Most phones of a hierarchy's groups. Default: all of a switch; with auto, by measurement.",
        min=0,
        show_default=False,
    ),
    wire=typer.Option(help="As what they travel: fp32, fp16, bf16, int8, powersgd or auto."),
    overlap=typer.Option("--overlap/--no-overlap", help="Send while others are still being computed."),
    bucket_bytes=typer.Option(
        "--bucket",
        help="Gradients sent at once, such as 4MB. Default: by measurement.",
        parser=_bytes,
        metavar="SIZE",
        show_default=False,
    ),
    local_steps=typer.Option(help="Steps alone between two exchanges, for slow links.", min=1),
    outer_rate=typer.Option(help="Of what was learned alone; 1 averages the phones' values.", min=0.0),
    outer_momentum=typer.Option(help="With which that is stepped along, as DiLoCo does (0.9).", min=0.0, max=1.0),
    balance=typer.Option(help="Images move from slow or hot phones to others: auto, or off.", metavar="auto|off"),
)
_COMPUTING = _panel(
    "On each phone",
    backend=typer.Option(
        help="What computes: cpu, opencl, hybrid (both), reference (numpy: slow), or auto: as clusterctl tune found.",
        autocompletion=complete_backend,
    ),
    threads=typer.Option(help="Default: one a big core.", min=0, max=MAX_THREADS, show_default=False),
    memory_bytes=typer.Option(
        "--memory",
        help="Most a phone may use, such as 2.8GB. Default: what training takes.",
        parser=_bytes,
        metavar="SIZE",
        show_default=False,
    ),
    half=typer.Option("--half", help="Store activations in fp16: twice the batch in the same memory."),
)
FLAGS: dict[str, Any] = {**_NETWORK, **_AMOUNTS, **_LEARNING, **_TALKING, **_COMPUTING}


def with_request(command: Callable[..., None]) -> Callable[..., None]:
    """Its first parameter, a LaunchRequest, becomes one flag a field."""
    hints = get_type_hints(LaunchRequest) | {"freeze": list[str] | None} | dict.fromkeys(_SIZES, int | None)
    unsaid = {"freeze": None} | dict.fromkeys(_SIZES)  # a parser would be handed the default as well
    defaults = {each.name: each.default for each in fields(LaunchRequest)} | unsaid
    flags = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=Annotated[hints[name], option],
        )
        for name, option in FLAGS.items()
    ]
    _, *others = inspect.signature(command, eval_str=True).parameters.values()
    rest = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others]

    @wraps(command)
    def flagged(**given: Any) -> None:
        asked = {name: given.pop(name) for name in FLAGS}
        said = {name: value for name, value in asked.items() if value is not None}
        command(LaunchRequest(**{**said, "freeze": tuple(said.get("freeze", ()))}), **given)

    flagged.__signature__ = inspect.Signature([*flags, *rest])  # type: ignore[attr-defined]
    flagged.__annotations__ = {each.name: each.annotation for each in (*flags, *rest)}
    return flagged
