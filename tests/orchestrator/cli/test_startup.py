"""Start-up time: help and simple commands import nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRANSPORT = {"paramiko", "fabric", "invoke", "cryptography"}
COMPUTE = {"numpy", "mpi4py", "pyopencl"}
IN_PROCESS = """
import json, sys
from orchestrator.cli.app import main
sys.argv[0] = "clusterctl"
try:
    main()
except SystemExit as stop:
    print(json.dumps([stop.code or 0, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    argv = [sys.executable, "-c", IN_PROCESS, *arguments]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    code, modules = json.loads(ended.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize("arguments", [["--help"], ["inventory", "--help"], ["lab", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    modules = imported_by(*arguments)
    assert "typer" in modules
    assert not modules & (TRANSPORT | COMPUTE | {"yaml", "asyncio", "multiprocessing"})


@pytest.mark.parametrize("command", ["check", "show", "hostfile"])
def test_inventory_commands_import_neither_ssh_nor_numpy(command: str) -> None:
    modules = imported_by("inventory", command, "-i", "inventory.yaml")
    assert "yaml" in modules
    assert not modules & (TRANSPORT | COMPUTE)
