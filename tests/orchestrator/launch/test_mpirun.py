from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from orchestrator.launch.mpirun import KEEPALIVE, launch_spec
from phone_agent.device import process
from tests.orchestrator.launch.samples import spec

SUBNET = IPv4Network("10.77.0.0/16")


def test_mpirun_has_the_arguments_that_termux_needs() -> None:
    launch = launch_spec(spec(), SUBNET)
    argv = launch.argv
    assert argv[0] == "mpirun"  # an absolute path would export LD_LIBRARY_PATH on every phone
    assert "--prefix" not in argv
    assert argv[argv.index("-np") + 1] == "4"
    parameters = {argv[at + 1]: argv[at + 2] for at, word in enumerate(argv) if word == "--mca"}
    assert parameters["btl_tcp_if_include"] == parameters["oob_tcp_if_include"] == "10.77.0.0/16"
    assert parameters["plm_rsh_no_tree_spawn"] == "1"
    assert {name: parameters[name] for name in KEEPALIVE} == KEEPALIVE
    assert parameters["plm_rsh_agent"].endswith(f"{spec().run_id}/daemons/record-daemon.sh")
    assert argv[-4:] == ("train", spec().run_id, "--attempt", "0")
    assert launch.env["OMPI_MCA_btl"] == "self,tcp"
    assert launch.env["CLUSTERCTL_WIRED"] == spec().ranks[0].address


def test_mpirun_is_not_mistaken_for_the_rank_on_the_head_phone(tmp_path: Path) -> None:
    """Otherwise a killed rank would seem alive as long as mpirun, and another phone would be blamed."""
    run_id = spec().run_id
    rank = ("python3", "-m", "phone_agent", "train", run_id, "--attempt", "0")
    for pid, argv in {7: launch_spec(spec(), SUBNET).argv, 8: rank, 9: (*rank[:4], "another", *rank[5:])}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in argv))
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (it) S " + "1 " * 40)
    assert sorted(process.run_processes(run_id, tmp_path)) == [7, 8]
    assert process.rank_processes(run_id, tmp_path) == [8]


def test_hostile_run_id_is_only_ever_an_argument() -> None:
    evil = "x; touch $HOME/owned"
    argv = launch_spec(replace(spec(), run_id=evil), SUBNET).argv
    assert evil in argv
    assert not any(evil in word and word != evil for word in argv[argv.index("bash") :])
