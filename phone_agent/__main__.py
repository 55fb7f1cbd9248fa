"""What the host runs on a phone: `python3 -m phone_agent VERB`. Answers with JSON on stdout."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from phone_agent.errors import AgentError


def main() -> int:
    arguments = parse()
    try:
        return int(arguments.verb(arguments))
    except AgentError as error:
        print(f"phone_agent: {error}", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="phone_agent", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verbs.add_parser("facts", help="what this phone is").set_defaults(verb=facts)
    verbs.add_parser("telemetry", help="how it is doing").set_defaults(verb=telemetry)
    train_parser = verbs.add_parser("train", help="be a rank of a run (mpirun calls this)")
    train_parser.add_argument("run_id")
    train_parser.set_defaults(verb=train)
    return parser.parse_args()


def answer(document: Any) -> int:
    print(json.dumps(document), flush=True)
    return 0


def facts(_: argparse.Namespace) -> int:
    from phone_agent.device import facts as device_facts

    return answer(device_facts.collect())


def telemetry(_: argparse.Namespace) -> int:
    from phone_agent.device import telemetry as device_telemetry

    return answer(device_telemetry.collect())


def train(arguments: argparse.Namespace) -> int:
    from phone_agent import rundir
    from phone_agent.device import affinity

    directory = rundir.find(arguments.run_id)
    spec = rundir.read_spec(directory)
    affinity.use_big_cores(spec.threads)
    from phone_agent.train import rank  # imports numpy: after the cores are chosen

    return rank.run(directory, spec)


if __name__ == "__main__":
    sys.exit(main())
