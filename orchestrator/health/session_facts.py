"""Facts about an SSH session on a phone, from session.sh: its environment, network and cores.

Cheap enough to be collected before every run. Phones are not trusted: every value is bounded, nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.provision.fact_parsing import FactLines, parse_integer
from orchestrator.text import one_line

MAX_LINES: Final = 5000
_FACT: Final = "fact\t"  # marks the lines of our scripts among other output
_MAX_CORES: Final = 1024
_RANGE: Final = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


@dataclass(frozen=True)
class SessionFacts:
    path: str = ""
    prefix: str = ""
    tmpdir: str = ""
    preload: str = ""
    tmp_writable: bool | None = None
    addresses: tuple[tuple[str, str], ...] = ()  # interface, address/prefix length; without the loopback
    interfaces: tuple[str, ...] = ()  # all, with or without an address
    outbound: str = ""  # the interface of the route to this computer, or `none`; empty: not known
    cpus_allowed: tuple[int, ...] = ()
    cpuset: str = ""
    cores: Mapping[int, int] = field(default_factory=dict)  # core -> maximum speed, in any unit
    wired_only: bool | None = None  # the Open MPI parameters restrict it to the wired network
    shell_error: str = ""  # the error of the phone if bash was not found

    @property
    def big_cores(self) -> tuple[int, ...]:
        """Cores faster than the slowest; none if all have the same speed."""
        slowest = min(self.cores.values(), default=0)
        return tuple(core for core, speed in self.cores.items() if speed > slowest)


def parse_fact_lines(output: str) -> FactLines:
    lines = output.splitlines()[:MAX_LINES]
    return FactLines(line.split("\t")[1:] for line in lines if line.startswith(_FACT))


def strip_fact_lines(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith(_FACT))


def parse_session_facts(output: str, shell_error: str = "") -> SessionFacts | None:
    """None if the output has no facts."""
    lines = parse_fact_lines(output)
    return session_facts(lines, shell_error) if lines else None


def session_facts(lines: FactLines, shell_error: str) -> SessionFacts:
    env = {name: bounded(value, 300) for name, value in lines.pairs("env")}
    return SessionFacts(
        path=env.get("PATH", ""),
        prefix=env.get("PREFIX", ""),
        tmpdir=env.get("TMPDIR", ""),
        preload=env.get("LD_PRELOAD", ""),
        tmp_writable=flag(lines, "tmp", "writable"),
        addresses=tuple(
            (bounded(n, 20), bounded(a, 40)) for n, a in lines.pairs("address") if not a.startswith("127.")
        ),
        interfaces=tuple(bounded(name, 20) for (name,) in lines.rows("interface", 1)),
        outbound=bounded(lines.text("outbound"), 20),
        cpus_allowed=parse_cores(lines.text("cpus_allowed")),
        cpuset=bounded(lines.text("cpuset"), 80),
        cores=_speeds(lines.pairs("core")),
        wired_only=flag(lines, "wired_only", "yes"),
        shell_error=bounded(shell_error, 200),
    )


def parse_cores(text: str) -> tuple[int, ...]:
    """The list format of the kernel: '0-2,4' -> (0, 1, 2, 4). Empty if the text is malformed."""
    cores: list[int] = []
    for part in text.strip().split(",")[:64]:
        found = _RANGE.fullmatch(part)
        if found is None:
            return ()
        cores.extend(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(cores[:_MAX_CORES])


def flag(lines: FactLines, key: str, yes: str) -> bool | None:
    return lines.text(key) == yes if key in lines else None


def bounded(text: str, limit: int) -> str:
    return one_line(text.strip(), limit)


def _speeds(pairs: list[tuple[str, str]]) -> dict[int, int]:
    known = [(parse_integer(core), parse_integer(speed)) for core, speed in pairs[:_MAX_CORES]]
    return {core: speed for core, speed in known if core is not None and speed is not None}
