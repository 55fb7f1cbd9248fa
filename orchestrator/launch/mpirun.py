"""The command line that carries a run from the head phone to all the others.

Open MPI as Termux ships it wants: a bare `mpirun` (an absolute path exports LD_LIBRARY_PATH on every phone), hosts by
address (every phone is called `localhost`), no binding (CPU 0 is a little core), daemons that let go of their ssh
(Android kills an app with more than 32 children), and the wired network named by its prefix (an unreachable mobile
interface otherwise hangs the first collective).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

from phone_agent.contract import layout
from phone_agent.contract.schema import LaunchSpec, RunSpec

# A rank starts in mpirun's directory on the head phone. Its own $HOME is where its own sshd says it is. It stays with
# the release it started from: what is imported late must not come from one that `provision` put in its place.
_ON_THE_PHONE = f'cd "$HOME" && PYTHONPATH=$(readlink -f {layout.CURRENT}) exec python3 -m phone_agent "$@"'

_ENVIRONMENT = {
    "OMPI_MCA_shmem": "mmap",  # the kernel has no System V shared memory, and asking for it kills the process
    "OMPI_MCA_btl": "self,tcp",
    "PMIX_MCA_gds": "hash",
}
# A phone that is gone is noticed in five seconds: quiet for two, then asked three times. Daemons get them from mpirun.
KEEPALIVE = {"oob_tcp_keepalive_time": "2", "oob_tcp_keepalive_intvl": "1", "oob_tcp_keepalive_probes": "3"}


def launch_spec(spec: RunSpec, subnet: IPv4Network, ssh_port: int) -> LaunchSpec:
    hostfile = str(layout.attempt_dir(spec.run_id, spec.attempt) / layout.HOSTFILE)
    rank = agent_argv("train", spec.run_id, "--attempt", str(spec.attempt))
    argv = mpirun_argv(len(spec.ranks), hostfile, subnet, ssh_port, rank, name=spec.run_id)
    env = {**environment(), layout.WIRED_ADDRESS: spec.ranks[0].address}
    return LaunchSpec(run_id=spec.run_id, argv=argv, env=env, attempt=spec.attempt)


def environment() -> dict[str, str]:
    return dict(_ENVIRONMENT)


def on_the_wire(address: str) -> tuple[str, ...]:
    """What comes before a command whose listeners are to be on that address of the phone it runs on."""
    return ("bash", str(layout.WIRED), address)


def agent_argv(*verb: str) -> tuple[str, ...]:
    """The agent as a rank: a fixed script, with everything that varies passed as arguments."""
    return ("bash", "-c", _ON_THE_PHONE, "bash", *verb)


def mpirun_argv(  # noqa: PLR0917 - what a hostfile cannot say
    ranks: int, hostfile: str, subnet: IPv4Network, ssh_port: int, program: Sequence[str], name: str | None = None
) -> tuple[str, ...]:
    """`name`: of a run. Nobody reads that parameter, but daemons get it on their command line: by it they are found."""
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
