from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.lab.init import boot_command, boot_scripts

PREFIX = Path("/data/data/com.termux/files/usr")


@pytest.mark.parametrize(
    ("first_line", "interpreter"),
    [
        ("#!/bin/sh", [f"{PREFIX}/bin/sh"]),
        ("#!/usr/bin/env bash", [f"{PREFIX}/bin/env", "bash"]),
        ("#!/data/data/com.termux/files/usr/bin/bash -e", [f"{PREFIX}/bin/bash", "-e"]),
        ("#!/system/bin/sh", ["/system/bin/sh"]),
        ("echo no interpreter named", [f"{PREFIX}/bin/sh"]),
        ("#!", [f"{PREFIX}/bin/sh"]),
    ],
)
def test_a_boot_script_runs_with_termux_s_interpreter(tmp_path: Path, first_line: str, interpreter: list[str]) -> None:
    script = tmp_path / "00-start"
    script.write_text(f"{first_line}\ntrue\n")
    assert boot_command(script, PREFIX) == [*interpreter, str(script)]


def test_a_program_is_started_directly(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF and so on\n")
    assert boot_command(program, PREFIX) == [str(program)]


def test_boot_scripts_end_at_the_first_directory(tmp_path: Path) -> None:
    boot = tmp_path / ".termux" / "boot"
    boot.mkdir(parents=True)
    for name in ("10-b", "00-a", "30-d"):
        (boot / name).touch()
    (boot / "20-c").mkdir()
    assert [script.name for script in boot_scripts(tmp_path)] == ["00-a", "10-b"]
    assert boot_scripts(tmp_path / "missing") == []
