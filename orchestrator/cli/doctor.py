"""`clusterctl doctor`: find problems with the phones, and fix them where possible."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.help import examples
from orchestrator.cli.options import InventoryOption, JsonOption, LimitOption
from orchestrator.errors import EXIT_FAILED

FixOption = Annotated[bool, typer.Option("--fix", help="Fix what can be fixed over SSH, then check again.")]


@examples("clusterctl doctor", "clusterctl doctor --fix --limit sw1:1-8", "clusterctl doctor --json")
def doctor(
    fix: FixOption = False, inventory: InventoryOption = None, limit: LimitOption = None, as_json: JsonOption = False
) -> None:
    """Check phones for known problems, and suggest fixes.

    Shows the evidence and a remedy for each problem. Takes at most 90 s. Exit code 1 if a problem would stop a run.
    """
    from orchestrator.cli.session import open_session
    from orchestrator.health.examination import DoctorContext, examine_all
    from orchestrator.health.fixes import apply_fixes
    from orchestrator.view.console import out, print_json
    from orchestrator.view.doctor import print_report
    from orchestrator.view.progress import phone_progress
    from orchestrator.view.provision import provision_progress

    session = open_session(inventory, limit)
    context = DoctorContext(session.cluster, session.phones, session.state, session.network)
    with context.open_fleet() as fleet, phone_progress("examining", context.phones) as on_done:
        report = examine_all(context, fleet, on_done)
    if fix and report.fixable:
        with provision_progress() as on_event:
            report = apply_fixes(context, report, on_event)
    if as_json:
        print_json(report.as_json(session.cluster.name))
    else:
        print_report(out, session.cluster.name, report)
    if not report.healthy:
        raise typer.Exit(EXIT_FAILED)
