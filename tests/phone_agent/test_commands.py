from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phone_agent.contract import manifest
from tests.phone_agent.phones import REPOSITORY, Phone


def test_facts_do_not_import_numpy() -> None:
    """The host asks often, and importing numpy takes half a second on a phone."""
    code = "import sys, runpy; sys.argv = ['phone_agent', 'runs']\n"
    code += "try: runpy.run_module('phone_agent', run_name='__main__')\nexcept SystemExit: pass\n"
    code += "print(sorted({name.partition('.')[0] for name in sys.modules} & {'numpy', 'mpi4py', 'orchestrator'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_agent_never_imports_the_orchestrator() -> None:
    imports = re.compile(r"^\s*(import|from) orchestrator", re.MULTILINE)
    sources = (REPOSITORY / "phone_agent").rglob("*.py")
    assert [path for path in sources if imports.search(path.read_text())] == []


@pytest.fixture
def released(phone: Phone, tmp_path: Path) -> Path:
    """The agent as installed on a phone: a release directory with a manifest."""
    release = tmp_path / "0.1-test"
    shutil.copytree(REPOSITORY / "phone_agent", release / "phone_agent", ignore=shutil.ignore_patterns("__pycache__"))
    manifest.write(release, version="0.1", target="host")
    return release


def selftest(phone: Phone, release: Path, *arguments: str, **env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """With the release as working directory, where `-m` searches first."""
    done = subprocess.run(
        [sys.executable, "-m", "phone_agent", "selftest", *arguments],
        env={**phone.env, "PYTHONPATH": str(release), "TMPDIR": str(phone.home), **env},
        cwd=release,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in report["checks"]}


def test_selftest_passes_on_a_good_phone(phone: Phone, released: Path) -> None:
    code, checks = selftest(phone, released, "--address", "127.0.0.1")
    assert code == 0, checks
    assert checks["release"]["detail"] == "version 0.1"
    assert checks["mpi4py"]["detail"].startswith("Open MPI v4")
    assert checks["core"]["detail"].split(", ")[-1] in {"sse2", "neon"}
    assert set(checks) == {"numpy", "mpi4py", "core", "ring", "tmpdir", "disk", "memory", "release", "address"}


def test_selftest_reports_all_problems(phone: Phone, released: Path) -> None:
    (released / "phone_agent" / "contract" / "rng.py").write_text("")
    code, checks = selftest(phone, released, "--address", "192.0.2.9", TMPDIR="/dev/null/x")
    assert code == 1
    assert "phone_agent/contract/rng.py is damaged: provision" in checks["release"]["detail"]
    assert "no interface has 192.0.2.9" in checks["address"]["detail"]
    assert "/dev/null/x is not writable" in checks["tmpdir"]["detail"]
    assert not checks["ring"]["ok"]
    assert checks["numpy"]["ok"]


def test_unknown_run_is_an_error(phone: Phone) -> None:
    for verb in ("start", "stop", "follow", "train"):
        done = phone.agent(verb, "20260101-000000-lenet-abcd")
        assert (done.returncode, done.stdout) == (1, "")
        assert "no run 20260101-000000-lenet-abcd on this phone" in done.stderr


def test_run_id_must_not_be_a_path(phone: Phone) -> None:
    done = phone.agent("start", "../../etc")
    assert done.returncode == 1
    assert "is not a valid run id" in done.stderr
