"""`clusterctl`: the commands in panels, and how errors reach the user.

Command modules import what they need when they run, so that `clusterctl --help` stays fast; a test checks this.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestrator.cli import (
    attach,
    bench,
    bootstrap,
    build,
    chaos,
    collect_logs,
    data,
    doctor,
    evaluate,
    export,
    forecast,
    hosts,
    inventory,
    lab,
    launch,
    models,
    predict,
    provision,
    runs,
    selftest,
    status,
    stop,
    timeline,
    tune,
)
from orchestrator.cli.help import HELP_NAMES, examples_of, join_help_lines
from orchestrator.errors import EXIT_INTERRUPTED, ClusterctlError, UsageError

PANELS: dict[str, dict[str, typer.Typer | Callable[..., Any]]] = {
    "Set up": {
        "inventory": inventory.app,
        "bootstrap": bootstrap.bootstrap,
        "provision": provision.provision,
        "selftest": selftest.selftest,
        "hosts": hosts.app,
        "build": build.build,
    },
    "Train": {
        "data": data.app,
        "models": models.app,
        "launch": launch.launch,
        "attach": attach.attach,
        "stop": stop.stop,
    },
    "Observe": {
        "status": status.status,
        "doctor": doctor.doctor,
        "runs": runs.runs,
        "collect-logs": collect_logs.collect_logs,
        "timeline": timeline.timeline,
    },
    "Use a model": {"eval": evaluate.evaluate, "predict": predict.predict, "export": export.export},
    "Measure": {"bench": bench.app, "tune": tune.tune, "forecast": forecast.forecast},
    "Lab": {"lab": lab.app, "chaos": chaos.chaos},
}


class PanelOrder(TyperGroup):
    """Typer lists single commands before groups; here they keep the order of `PANELS`."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        return [name for commands in PANELS.values() for name in commands]


app = typer.Typer(
    name="clusterctl",
    cls=PanelOrder,
    help="Train neural networks on a rack of retired Android phones.",
    epilog=(
        "[bold]First steps, with virtual phones on this computer[/]\n"
        "clusterctl lab up --phones 4\n"
        "clusterctl provision\n"
        "clusterctl launch --model lenet"
    ),
    context_settings=HELP_NAMES,
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def clusterctl(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"clusterctl {installed('clusterctl')}")
        raise typer.Exit


for _panel, _commands in PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            join_help_lines(_command)
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel, epilog=examples_of(_command))(_command)
join_help_lines(app)


def main() -> None:
    try:
        app()
    except ClusterctlError as error:
        _fail(error)
    except OSError as error:
        _fail(_as_clusterctl_error(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _fail(error: ClusterctlError) -> None:
    from orchestrator.view.console import print_error

    print_error(error)
    sys.exit(error.exit_code)


def _as_clusterctl_error(error: OSError) -> ClusterctlError:
    """An error that names a file is about the user's input; any other is about this computer."""
    if error.filename is None:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        remedy = "free some disk space on this computer" if full else None
        return ClusterctlError(error.strerror or str(error) or type(error).__name__, remedy=remedy)
    return UsageError(f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
