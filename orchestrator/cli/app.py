"""`clusterctl`: the commands, and how their errors reach a person.

Command modules import what they need when they run, so `clusterctl --help` stays fast; a test keeps it so.
"""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

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
from orchestrator.errors import EXIT_INTERRUPTED, ClusterctlError, UsageError

app = typer.Typer(
    name="clusterctl",
    help="Turn a rack of retired Android phones into a computer that trains neural networks.",
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


app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(hosts.app, name="hosts")
app.add_typer(inventory.app, name="inventory")
app.add_typer(lab.app, name="lab")
app.add_typer(models.app, name="models")
app.command()(attach.attach)
app.command()(bootstrap.bootstrap)
app.command()(build.build)
app.command()(chaos.chaos)
app.command()(collect_logs.collect_logs)
app.command()(doctor.doctor)
app.command("eval")(evaluate.evaluate)
app.command()(export.export)
app.command()(forecast.forecast)
app.command()(launch.launch)
app.command()(predict.predict)
app.command()(provision.provision)
app.command()(runs.runs)
app.command()(selftest.selftest)
app.command()(status.status)
app.command()(stop.stop)
app.command()(timeline.timeline)
app.command()(tune.tune)


def main() -> None:
    try:
        app()
    except ClusterctlError as error:
        from orchestrator.view.console import print_error

        print_error(error)
        sys.exit(error.exit_code)
    except OSError as error:
        from orchestrator.view.console import print_error

        told = _told(error)
        print_error(told)
        sys.exit(told.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _told(error: OSError) -> ClusterctlError:
    """A file that is named is one of the user's; all else is this computer's."""
    if error.filename is None:
        room = "free some room on this computer" if error.errno in {errno.ENOSPC, errno.EDQUOT} else None
        return ClusterctlError(error.strerror or str(error) or type(error).__name__, remedy=room)
    return UsageError(f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
