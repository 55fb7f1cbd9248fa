"""The mpirun command that starts one rank per phone from the head phone.

Open MPI on Termux needs: a bare `mpirun` (an absolute path exports LD_LIBRARY_PATH on every phone), hosts by address
(every phone is called `localhost`), no binding (CPU 0 is a little core), daemons that detach from their ssh (Android
kills an app with more than 32 children), and the wired network given as a subnet (an unreachable mobile interface
otherwise hangs the first collective).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

from phone_agent.contract import layout
from phone_agent.contract.schema import LaunchSpec, RunSpec

# mpirun starts ranks in its own working directory, so the script changes to the $HOME of the phone. The release is
# resolved once: modules that are imported late must not come from a release that `provision` installed meanwhile.
_RANK_SCRIPT = f'cd "$HOME" && PYTHONPATH=$(readlink -f {layout.CURRENT}) exec python3 -m phone_agent "$@"'

_ENVIRONMENT = {
    "OMPI_MCA_shmem": "mmap",  # Android kernels have no System V shared memory, and the system call kills the process
    "OMPI_MCA_btl": "self,tcp",
    "PMIX_MCA_gds": "hash",
}
# A lost phone is noticed within five seconds: after 2 s of silence, 3 probes. mpirun passes them on to its daemons.
KEEPALIVE = {"oob_tcp_keepalive_time": "2", "oob_tcp_keepalive_intvl": "1", "oob_tcp_keepalive_probes": "3"}


def launch_spec(spec: RunSpec, subnet: IPv4Network, ssh_port: int) -> LaunchSpec:
    hostfile = str(layout.attempt_dir(spec.run_id, spec.attempt) / layout.HOSTFILE)
    rank = agent_argv("train", spec.run_id, "--attempt", str(spec.attempt))
    argv = mpirun_argv(len(spec.ranks), hostfile, subnet, ssh_port, rank, name=spec.run_id)
    env = {**environment(), layout.WIRED_ADDRESS: spec.ranks[0].address}
    return LaunchSpec(run_id=spec.run_id, argv=argv, env=env, attempt=spec.attempt)


def environment() -> dict[str, str]:
    return dict(_ENVIRONMENT)


def bind_to(address: str) -> tuple[str, ...]:
    """Command prefix: all listeners of the command bind to this address of the phone only."""
    return ("bash", str(layout.WIRED), address)


def agent_argv(*verb: str) -> tuple[str, ...]:
    """The command of a rank: a fixed script; everything variable is an argument, so nothing needs quoting."""
    return ("bash", "-c", _RANK_SCRIPT, "bash", *verb)


def mpirun_argv(  # noqa: PLR0917
    ranks: int, hostfile: str, subnet: IPv4Network, ssh_port: int, program: Sequence[str], name: str | None = None
) -> tuple[str, ...]:
    """`name`: of the run. Open MPI ignores the parameter, but it identifies the daemons in a process list."""
    parameters = {
        **({"clusterctl_run": name} if name else {}),
        "plm_rsh_agent": f"ssh -p {ssh_port} -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=8",
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_num_concurrent": "16",
        "btl_tcp_if_include": str(subnet),
        "oob_tcp_if_include": str(subnet),
        **KEEPALIVE,
    }
    mca = [part for name, value in parameters.items() for part in ("--mca", name, value)]
    return (
        "mpirun",
        "--hostfile",
        hostfile,
        "-np",
        str(ranks),
        "--bind-to",
        "none",
        "--map-by",
        "node",
        *mca,
        *program,
    )
