"""The mpirun command that starts one rank per phone from the head phone.

Open MPI on Termux needs: a bare `mpirun` (an absolute path exports LD_LIBRARY_PATH on every phone), hosts by address
(every phone is called `localhost`), no binding (CPU 0 is a little core), and the wired network given as a subnet (an
unreachable mobile interface otherwise hangs the first collective).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import PurePosixPath

from phone_agent.contract import layout
from phone_agent.contract.schema import LaunchSpec, RunSpec

# The rank on the head phone, which mpirun starts itself. On other phones rank_launcher.c runs the same script.
_RANK_SCRIPT = f'cd "$HOME" && PYTHONPATH=$(readlink -f {layout.CURRENT}) exec python3 -m phone_agent "$@"'

_ENVIRONMENT = {
    "OMPI_MCA_shmem": "mmap",  # Android kernels have no System V shared memory, and the system call kills the process
    "OMPI_MCA_btl": "self,tcp",
    "PMIX_MCA_gds": "hash",
}
# A lost phone is noticed within five seconds: after 2 s of silence, 3 probes. mpirun passes them on to its daemons.
KEEPALIVE = {"oob_tcp_keepalive_time": "2", "oob_tcp_keepalive_intvl": "1", "oob_tcp_keepalive_probes": "3"}


def launch_spec(spec: RunSpec, subnet: IPv4Network) -> LaunchSpec:
    directory = layout.attempt_dir(spec.run_id, spec.attempt)
    program = agent_argv(*rank_verb(spec))
    argv = mpirun_argv(len(spec.ranks), directory, parameters(subnet, spec.run_id), program)
    env = {**environment(), layout.WIRED_ADDRESS: spec.ranks[0].address}
    return LaunchSpec(run_id=spec.run_id, argv=argv, env=env, attempt=spec.attempt)


def rank_verb(spec: RunSpec) -> tuple[str, ...]:
    """The agent command that is a rank."""
    return ("train", spec.run_id, "--attempt", str(spec.attempt))


def parameters(subnet: IPv4Network, name: str) -> dict[str, str]:
    """Of mpirun and its daemons. `name`: of the run. Open MPI ignores it, but it identifies processes in a list."""
    return {
        "clusterctl_run": name,
        "btl_tcp_if_include": str(subnet),
        "oob_tcp_if_include": str(subnet),
        **KEEPALIVE,
    }


def environment() -> dict[str, str]:
    return dict(_ENVIRONMENT)


def bind_to(address: str) -> tuple[str, ...]:
    """Command prefix: all listeners of the command bind to this address of the phone only."""
    return ("bash", str(layout.WIRED), address)


def agent_argv(*verb: str) -> tuple[str, ...]:
    """The command of a rank: a fixed script; everything variable is an argument, so nothing needs quoting."""
    return ("bash", "-c", _RANK_SCRIPT, "bash", *verb)


def mpirun_argv(
    ranks: int, directory: PurePosixPath, parameters: Mapping[str, str], program: Sequence[str]
) -> tuple[str, ...]:
    """`directory`: with the hostfile, and the script that mpirun calls instead of ssh."""
    parameters = {
        **parameters,
        "plm_rsh_agent": f"bash {directory / layout.DAEMONS / layout.RECORD_DAEMON}",
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_num_concurrent": "16",
    }
    mca = [part for name, value in parameters.items() for part in ("--mca", name, value)]
    return (
        "mpirun",
        "--hostfile",
        str(directory / layout.HOSTFILE),
        "-np",
        str(ranks),
        "--bind-to",
        "none",
        "--map-by",
        "node",
        *mca,
        *program,
    )
