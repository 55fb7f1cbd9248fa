"""`clusterctl lab`: a rack of virtual phones on this computer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.options import JsonOption


class PowerState(StrEnum):
    ON = "on"
    OFF = "off"


app = typer.Typer(help="A rack of virtual phones on this computer.", no_args_is_help=True)


def _complete_phone(incomplete: str) -> list[str]:
    from orchestrator.errors import ClusterctlError
    from orchestrator.lab.client import read_spec
    from orchestrator.paths import lab_dir

    try:
        phones = read_spec(lab_dir()).phones
    except ClusterctlError:
        return []
    return [phone.name for phone in phones if phone.name.startswith(incomplete)]


PhoneArgument = Annotated[
    str,
    typer.Argument(help="A phone's name, such as p1-01.", show_default=False, autocompletion=_complete_phone),
]
CommandArgument = Annotated[list[str], typer.Argument(help="The command, after --.", show_default=False)]
_PASS_THROUGH = {"ignore_unknown_options": True}


@app.command()
def up(
    phones: Annotated[int, typer.Option(help="How many virtual phones.")] = 4,
    switches: Annotated[int, typer.Option(help="How many switches, in a chain.")] = 1,
    rate: Annotated[str, typer.Option(help="Speed of each phone's link, both directions.")] = "1gbit",
    uplink: Annotated[str, typer.Option(help="Speed of the links between switches.")] = "1gbit",
    disk: Annotated[str, typer.Option(help="Room for each phone's data, in memory.")] = "1g",
    arch: Annotated[
        str, typer.Option(help="native: this computer's programs; aarch64: a phone's, under an emulator.")
    ] = "native",
) -> None:
    """Start a lab: real sshd on every phone, real links of the given speed."""
    from orchestrator.lab.lifecycle import up as bring_up
    from orchestrator.lab.shape import Shape, arch_named
    from orchestrator.view.console import next_step, note
    from orchestrator.view.lab import print_started

    outcome = bring_up(Shape(phones, switches, rate, uplink, disk, arch_named(arch)), note)
    print_started(outcome)
    next_step("clusterctl provision")


@app.command()
def down() -> None:
    """Remove the lab and everything in it."""
    from orchestrator.lab.lifecycle import down as take_down
    from orchestrator.view.console import note

    note("the lab is gone" if take_down() else "no lab is up")


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Which phones are up, and whether their sshd listens."""
    from orchestrator.lab.status import look
    from orchestrator.paths import lab_dir
    from orchestrator.view.console import print_json
    from orchestrator.view.lab import print_status

    report = look(lab_dir())
    if as_json:
        print_json(report)
    else:
        print_status(report)


@app.command("exec", context_settings=_PASS_THROUGH)
def execute(phone: PhoneArgument, command: CommandArgument) -> None:
    """Run a command on a phone as its user, without ssh. Its exit code is passed on."""
    from orchestrator.lab.remote import run
    from orchestrator.paths import lab_dir

    raise typer.Exit(run(lab_dir(), phone, command))


@app.command(context_settings=_PASS_THROUGH)
def enter(command: CommandArgument) -> None:
    """Run a command on the host's side of the lab's network."""
    from orchestrator.lab.remote import enter as run_inside
    from orchestrator.paths import lab_dir

    run_inside(lab_dir(), command)


@app.command()
def power(phone: PhoneArgument, state: Annotated[PowerState, typer.Argument(help="on or off.")]) -> None:
    """Switch a phone off, as by pulling its power, or on again. Its data stays."""
    from orchestrator.lab.faults import set_power
    from orchestrator.paths import lab_dir

    set_power(lab_dir(), phone, state)


@app.command("set")
def change(
    phone: PhoneArgument,
    settings: Annotated[list[str], typer.Argument(help="Such as thermal.cpu=71.5 or link=down.", show_default=False)],
) -> None:
    """Change what a phone reports (battery, heat), or break it: link=down, disk=full, throttle=0.3, phantom=on, …"""
    from orchestrator.lab.faults import change as apply
    from orchestrator.paths import lab_dir

    apply(lab_dir(), phone, settings)
