"""`clusterctl lab`: a rack of virtual phones on this computer."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.choices import Arch, PowerState
from orchestrator.cli.help import EXPERT, format_examples
from orchestrator.cli.options import JsonOption
from orchestrator.errors import EXIT_FAILED

app = typer.Typer(help="Run a rack of virtual phones on this computer.", no_args_is_help=True)


def _complete_phone(incomplete: str) -> list[str]:
    from orchestrator.errors import ClusterctlError
    from orchestrator.lab.client import read_spec
    from orchestrator.paths import lab_dir

    try:
        phones = read_spec(lab_dir()).phones
    except ClusterctlError:
        return []
    return [phone.name for phone in phones if phone.name.startswith(incomplete)]


PhoneArgument = Annotated[str, typer.Argument(help="Phone name, such as p1-01.", autocompletion=_complete_phone)]
CommandArgument = Annotated[list[str], typer.Argument(help="Command to run, after --.")]
_PASS_THROUGH = {"ignore_unknown_options": True}


@app.command(
    epilog=format_examples(
        "clusterctl lab up",
        "clusterctl lab up --phones 8 --switches 2 --uplink 100mbit",
        "clusterctl provision",
        "clusterctl launch --model lenet",
        "clusterctl lab down",
    )
)
def up(
    phones: Annotated[int, typer.Option(help="Number of virtual phones.")] = 4,
    switches: Annotated[int, typer.Option(help="Number of switches, connected in a chain.")] = 1,
    rate: Annotated[str, typer.Option(help="Link speed per phone, in each direction.")] = "1gbit",
    uplink: Annotated[str, typer.Option(help="Link speed between switches.")] = "1gbit",
    disk: Annotated[str, typer.Option(help="Storage per phone, held in memory.")] = "1g",
    arch: Annotated[
        Arch,
        typer.Option(help="Processor. native: this computer's; aarch64: a phone's, emulated.", rich_help_panel=EXPERT),
    ] = "native",
) -> None:
    """Start a lab: virtual phones with real SSH servers and links of the given speed."""
    from orchestrator.lab.config import LabConfig, parse_arch
    from orchestrator.lab.lifecycle import up as bring_up
    from orchestrator.view.console import next_step
    from orchestrator.view.lab import print_started
    from orchestrator.view.progress import working

    with working("starting the lab") as show:
        outcome = bring_up(LabConfig(phones, switches, rate, uplink, disk, parse_arch(arch)), show)
        if not outcome.already_running:  # a boot of this computer may have ended another one without `lab down`
            _end_runs()
    print_started(outcome)
    next_step("clusterctl provision")


@app.command()
def down(
    force: Annotated[bool, typer.Option("--force", help="Remove the lab even while a run is unfinished.")] = False,
) -> None:
    """Remove the lab and everything in it.

    Asks first if a run is unfinished.
    """
    from orchestrator.lab.lifecycle import down as take_down
    from orchestrator.lab.lifecycle import is_running
    from orchestrator.lab.spec import CLUSTER_NAME
    from orchestrator.paths import ClusterState
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.service import end_supervisor
    from orchestrator.view.console import note
    from orchestrator.view.lab import confirm_removal
    from orchestrator.view.progress import working

    unfinished = [record for record in RunStore(ClusterState(CLUSTER_NAME).runs).all() if not record.over]
    if unfinished and is_running() and not force and not confirm_removal(unfinished):
        raise typer.Exit(EXIT_FAILED)
    with working("removing the lab"):
        end_supervisor(ClusterState(CLUSTER_NAME))
        removed = take_down()
        _end_runs()
    note("lab removed" if removed else "no lab is running")


def _end_runs() -> None:
    """Their phones are gone."""
    from orchestrator.lab.spec import CLUSTER_NAME
    from orchestrator.paths import ClusterState
    from orchestrator.records.record import RunStore
    from orchestrator.supervisor.service import end_supervisor
    from orchestrator.supervisor.stop import abandon_runs

    state = ClusterState(CLUSTER_NAME)
    end_supervisor(state)
    abandon_runs(RunStore(state.runs), "the lab was removed")


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show which virtual phones are on and reachable over SSH."""
    from orchestrator.lab.client import lab_status
    from orchestrator.paths import lab_dir
    from orchestrator.view.console import print_json
    from orchestrator.view.lab import print_status

    report = lab_status(lab_dir())
    if as_json:
        print_json(report)
    else:
        print_status(report)


@app.command("exec", context_settings=_PASS_THROUGH)
def execute(phone: PhoneArgument, command: CommandArgument) -> None:
    """Run a command on a virtual phone as its Termux user, without SSH. Returns the command's exit code."""
    from orchestrator.lab.client import exec_on_phone
    from orchestrator.paths import lab_dir

    raise typer.Exit(exec_on_phone(lab_dir(), phone, command))


@app.command(context_settings=_PASS_THROUGH)
def enter(command: CommandArgument) -> None:
    """Run a command on this computer inside the lab's network, where the phones can be reached."""
    from orchestrator.lab.client import enter as run_inside
    from orchestrator.paths import lab_dir

    run_inside(lab_dir(), command)


@app.command()
def power(phone: PhoneArgument, state: Annotated[PowerState, typer.Argument(help="Power state.")]) -> None:
    """Cut a virtual phone's power, or restore it. The phone keeps its data."""
    from orchestrator.lab.settings import set_power
    from orchestrator.paths import lab_dir

    set_power(lab_dir(), phone, state)


@app.command(
    "set",
    epilog=format_examples(
        "clusterctl lab set p1-01 thermal.cpu=85 battery.percentage=12",
        "clusterctl lab set p1-01 link=down",
        "clusterctl lab set p1-01 throttle=0.3 disk=full",
    ),
)
def change(
    phone: PhoneArgument,
    settings: Annotated[list[str], typer.Argument(help="KEY=VALUE, such as thermal.cpu=71.5 or link=down.")],
) -> None:
    """Change a virtual phone's sensor readings, or inject a fault.

    Readings: battery.*, thermal.*. Faults: link=down, disk=full, throttle=0.3, phantom=on (Android's phantom process
    killer). Full list: docs/guide/lab.md.
    """
    from orchestrator.lab.settings import apply_settings
    from orchestrator.paths import lab_dir

    apply_settings(lab_dir(), phone, settings)
