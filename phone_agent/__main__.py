"""Commands that the host runs on a phone: `python3 -m phone_agent COMMAND`.

They print JSON to stdout. A command that fails exits with 1, and the last line of its error output is a JSON object
with the code and message of the error (phone_agent.contract.errors.error_line).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from phone_agent.contract.errors import AgentError, error_line


def main() -> int:
    arguments = parse()
    try:
        return int(arguments.command(arguments))
    except BrokenPipeError:  # the host disconnected
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 - reported to the host with its code
        if not isinstance(error, AgentError):
            traceback.print_exc()
        print(error_line(error), file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="phone_agent", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(command=command)
        return added

    add("facts", facts, "print the properties of this phone")
    add("telemetry", telemetry, "print this phone's current state")
    add("selftest", selftest, "check that this phone can train").add_argument(
        "--address", help="expected wired address"
    )
    checker = add("check-assumptions", check_assumptions, "check our assumptions about phones on this phone")
    checker.add_argument("--address", required=True, help="expected wired address")
    checker.add_argument("--interface", required=True, help="the interface that should have this address")
    checker.add_argument("--host", required=True, help="address of the callback server")
    checker.add_argument("--port", type=int, required=True)
    checker.add_argument("--only", action="append", default=[], help="name of a check (default: all; repeatable)")
    _add_run_commands(add)
    add("data-receive", data_receive, "receive a dataset on standard input and forward it")
    lister = add("data-list", data_list, "list the files of a dataset on this phone")
    lister.add_argument("name", type=dataset_name)
    lister.add_argument("--verify", action="store_true", help="verify their checksums")
    add("data-remove", data_remove, "delete a dataset").add_argument("name", type=dataset_name)
    bench = add("allreduce-bench", allreduce_bench, "time an allreduce (started by mpirun)")
    bench.add_argument("--mb", type=float)
    bench.add_argument("--algorithm", default="ring")
    bench.add_argument("--wire", default="fp32")
    bench.add_argument("--switches", help="switch of each rank, separated by commas")
    bench.add_argument("--group", type=int, default=0, help="maximum phones per group (hierarchical)")
    bench.add_argument("--model", help="reduce gradients of this model; sets the size unless --mb is given")
    bench.add_argument("--repeats", type=int, default=5)
    solver = add("linpack", linpack, "run LINPACK (started by mpirun)")
    solver.add_argument("--n", type=int, required=True, help="number of equations")
    solver.add_argument("--nb", type=int, required=True, help="block size")
    solver.add_argument("--grid", required=True, help="process grid, for example 2x3")
    solver.add_argument("--threads", type=int, default=0, help="default: one per big core")
    solver.add_argument("--seed", type=int, default=1)
    add("opencl", opencl, "print the OpenCL device").add_argument(
        "--in-process", action="store_true", help="probe in this process, without changing LD_LIBRARY_PATH"
    )
    add("device-kind", device_kind, "device kind, core and OpenCL driver of this phone")
    tuner = add("tune", tune, "measure the fastest device config; prints JSON rows")
    tuner.add_argument("request", help="JSON")
    tuner.add_argument("--part", help="measure one part, in this process")
    add("device-study", device_study, "measure this device; prints JSON rows").add_argument("request", help="JSON")
    return parser.parse_args()


def _add_run_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    starter = add("start", start, "start a staged run in the background")
    starter.add_argument("run_id")
    starter.add_argument("--attempt", type=int, default=0)
    daemoner = add("daemons", daemons, "wait until mpirun asks for its daemons; print their commands")
    daemoner.add_argument("run_id")
    daemoner.add_argument("--attempt", type=int, default=0)
    daemoner.add_argument("--count", type=int, required=True)
    daemoner.add_argument("--timeout", type=float, required=True)
    requester = add("request-stop", request_stop, "let an attempt write a checkpoint after the current step and end")
    requester.add_argument("run_id")
    requester.add_argument("--attempt", type=int, default=0)
    requester.add_argument("--holder", help="who requests it; rejected while another host holds the lease")
    stopper = add("stop", stop, "end a run at once")
    stopper.add_argument("run_id")
    stopper.add_argument("--holder", help="who requests it; rejected while another host holds the lease")
    follower = add("follow", follow, "print the events of a run as they are written")
    follower.add_argument("run_id")
    follower.add_argument("--attempt", type=int, default=0)
    follower.add_argument("--holder", help="who holds the lease of the run while following it")
    follower.add_argument("--offset", type=int, default=0, help="bytes of events.jsonl to skip")
    add("runs", runs, "list the runs on this phone")
    rank = add("train", train, "run one rank of a run (started by mpirun)")
    rank.add_argument("run_id")
    rank.add_argument("--attempt", type=int, default=0)
    add("memckpt-server", memckpt_server, "serve in-memory checkpoints of a run (started by its ranks)").add_argument(
        "run_id"
    )
    cleaner = add("cleanup", cleanup, "end all processes of a run on this phone; print the steps held in memory")
    cleaner.add_argument("run_id")
    cleaner.add_argument("--discard-state", action="store_true", help="free the in-memory checkpoint as well")
    cleaner.add_argument("--holder", help="who requests it; rejected while another host holds the lease")
    add("checkpoints", checkpoints, "print the newest intact checkpoint of a run on this phone").add_argument("run_id")
    add("write-checkpoint", write_checkpoint, "write the step held in memory to a checkpoint file").add_argument(
        "run_id"
    )
    prober = add("probe", probe, "print the state of a run on this phone")
    prober.add_argument("run_id")
    prober.add_argument("--logcat", action="store_true", help="search Android's log for who killed the rank")
    yielder = add("yield", yield_, "end an attempt after the current step, so that another can follow")
    yielder.add_argument("run_id")
    yielder.add_argument("--attempt", type=int, default=0)


def answer(document: Any) -> int:
    print(json.dumps(document), flush=True)
    return 0


def facts(_: argparse.Namespace) -> int:
    from phone_agent.device import facts as device_facts

    return answer(device_facts.collect())


def telemetry(_: argparse.Namespace) -> int:
    from phone_agent.device import telemetry as device_telemetry
    from phone_agent.job.runs import latest

    return answer({**device_telemetry.collect(), "run": latest()})


def selftest(arguments: argparse.Namespace) -> int:
    from phone_agent.selftest import worker

    report = worker.run(arguments.address)
    answer(report)
    return 0 if report["ok"] else 1


def check_assumptions(arguments: argparse.Namespace) -> int:
    from phone_agent.contract.assumptions import WiredNetwork
    from phone_agent.selftest import assumptions

    wired = WiredNetwork(arguments.address, arguments.interface, arguments.host, arguments.port)
    for row in assumptions.check_assumptions(wired, arguments.only):
        answer(row)
    return 0


def start(arguments: argparse.Namespace) -> int:
    from phone_agent.job.start import start as start_run

    return answer({"pid": start_run(arguments.run_id, arguments.attempt)})


def daemons(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from phone_agent.job.daemons import wait_for_daemons

    found = wait_for_daemons(arguments.run_id, arguments.attempt, arguments.count, arguments.timeout)
    return answer(asdict(found))


def request_stop(arguments: argparse.Namespace) -> int:
    from phone_agent.job.stop import request_stop as request

    return answer({"requested": request(arguments.run_id, arguments.attempt, arguments.holder)})


def stop(arguments: argparse.Namespace) -> int:
    from phone_agent.job.stop import stop as stop_run

    return answer(stop_run(arguments.run_id, holder=arguments.holder))


def follow(arguments: argparse.Namespace) -> int:
    from phone_agent.job.follow import follow as follow_run

    for line in follow_run(arguments.run_id, arguments.offset, arguments.attempt, holder=arguments.holder):
        print(line, flush=True)
    return 0


def runs(_: argparse.Namespace) -> int:
    from phone_agent.job.runs import all_runs

    return answer(all_runs())


def train(arguments: argparse.Namespace) -> int:
    from phone_agent.contract.startup import StartupPhase
    from phone_agent.device import affinity
    from phone_agent.job import run_directory
    from phone_agent.job.startup_log import StartupLog
    from phone_agent.train import device_config

    directory = run_directory.find(arguments.run_id, arguments.attempt)
    StartupLog(directory).enter(StartupPhase.IMPORTING)
    spec = run_directory.read_spec(directory)
    phone = run_directory.own_phone(spec, os.environ)
    spec = device_config.fall_back_to_cpu(spec, phone, run_directory.run_of(directory))
    own = device_config.config_for(spec, phone)
    threads = affinity.pin_to_big_cores(own.threads)
    if own.little_cores:
        affinity.pin_to_core_set(affinity.core_sets()[-1])
    affinity.reduce_timer_slack()
    from phone_agent.train import rank  # imports numpy: after the cores are chosen

    return rank.run(directory, spec, threads)


def memckpt_server(arguments: argparse.Namespace) -> int:
    from phone_agent.job import run_directory
    from phone_agent.memckpt.server import serve

    serve(run_directory.find(arguments.run_id))
    return 0


def cleanup(arguments: argparse.Namespace) -> int:
    from phone_agent.job.stop import cleanup as clean_up

    return answer(clean_up(arguments.run_id, discard_state=arguments.discard_state, holder=arguments.holder))


def checkpoints(arguments: argparse.Namespace) -> int:
    from phone_agent.job import run_directory
    from phone_agent.train.checkpoint import newest_intact

    newest, damaged = newest_intact(run_directory.find(arguments.run_id))
    return answer({"newest": newest, "damaged": damaged})


def write_checkpoint(arguments: argparse.Namespace) -> int:
    from phone_agent.job import run_directory
    from phone_agent.train.memory_checkpoint import write_from_memory

    return answer(write_from_memory(run_directory.find(arguments.run_id)))


def probe(arguments: argparse.Namespace) -> int:
    from phone_agent.job.probe import probe as probe_run

    return answer(probe_run(arguments.run_id, logcat=arguments.logcat))


def yield_(arguments: argparse.Namespace) -> int:
    from phone_agent.job.probe import request_yield

    return answer({"requested": request_yield(arguments.run_id, arguments.attempt)})


def dataset_name(text: str) -> str:
    from phone_agent.contract.dataset_manifest import NAME

    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("not a dataset name")
    return text


def data_receive(_: argparse.Namespace) -> int:
    from phone_agent.data.receive import receive

    receive(sys.stdin.buffer, answer)
    return 0


def data_list(arguments: argparse.Namespace) -> int:
    from phone_agent.data.receive import stored_files

    return answer(stored_files(arguments.name, verify=arguments.verify))


def data_remove(arguments: argparse.Namespace) -> int:
    from phone_agent.data.receive import remove

    return answer({"removed": remove(arguments.name)})


def opencl(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    if not arguments.in_process:
        from phone_agent.backends.opencl import driver_path

        return answer(asdict(driver_path.probe_device()))
    from phone_agent.backends.opencl import device

    try:
        found = device.find_device()
    except AgentError as error:
        return answer({"device": None, "why": str(error)})
    return answer({"device": {**asdict(found.identity), **asdict(found.limits)}})


def device_kind(_: argparse.Namespace) -> int:
    from phone_agent.tune.device_kind import collect

    return answer(collect())


def tune(arguments: argparse.Namespace) -> int:
    from phone_agent.contract.tune import read_tune_request
    from phone_agent.tune import search, trials

    request = read_tune_request(arguments.request)
    rows = trials.measure(arguments.part, request) if arguments.part else search.search(request)
    for row in rows:
        answer(row)
    return 0


def device_study(arguments: argparse.Namespace) -> int:
    from phone_agent.contract.device_study import document, read_study_request
    from phone_agent.device import affinity

    request = read_study_request(arguments.request)
    if "opencl" in request.backends:
        from phone_agent.backends.opencl import driver_path

        driver_path.prepare_driver()
    threads = affinity.pin_to_big_cores(request.threads)
    from phone_agent.device_study import run  # imports numpy: after the cores are chosen

    for row in run.study(request, threads):
        answer(document(row))
    return 0


def allreduce_bench(arguments: argparse.Namespace) -> int:
    from phone_agent.comm import bench
    from phone_agent.comm.world import abort_all_on_error, open_world
    from phone_agent.device import affinity

    affinity.reduce_timer_slack()
    world = open_world()
    case = bench.AllreduceCase(
        algorithm=arguments.algorithm,
        wire=arguments.wire,
        switches=arguments.switches.split(",") if arguments.switches else None,
        group=arguments.group,
        megabytes=arguments.mb,
        model=arguments.model,
    )
    with abort_all_on_error(world):
        report = bench.run(world, case, arguments.repeats)
    return answer(report) if world.rank == 0 else 0


def linpack(arguments: argparse.Namespace) -> int:
    from phone_agent.device import affinity

    threads = affinity.pin_to_big_cores(arguments.threads)
    affinity.reduce_timer_slack()
    from phone_agent.comm.world import abort_all_on_error, open_world  # imports numpy: after the cores are chosen
    from phone_agent.linpack import bench
    from phone_agent.linpack.matrix import Grid
    from phone_agent.linpack.process_grid import ProcessGrid

    world = open_world()
    with abort_all_on_error(world):
        grid = Grid.parse(arguments.grid, world.size)
        report = bench.run(bench.LinpackSize(arguments.n, arguments.nb, threads, arguments.seed), ProcessGrid(grid))
    return answer(report) if world.rank == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
