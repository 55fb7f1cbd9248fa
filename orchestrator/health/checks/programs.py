"""What is installed: whether it starts, whether it is the same on all phones, whether its installation waits."""

from __future__ import annotations

from typing import Final

from orchestrator.health.checks.session import environment, temporary_files
from orchestrator.health.doctor_facts import Symptom
from orchestrator.health.finding import Check, Finding, Fix, note, stops
from orchestrator.health.observation import Seen

_SET_UP: Final = "clusterctl provision --limit {phones}"
_WAITS_S: Final = 60
_MUST_MATCH: Final = frozenset({"openmpi", "python", "python-numpy"})
_KILLED_BY_SIGSYS: Final = 159


def linker(seen: Seen) -> Finding | None:
    """Row 6."""
    for name in ("python", "mpirun", "agent", "mpi"):
        ran = seen.facts.ran.get(name) if seen.facts else None
        if ran and ran.rc != 0 and Symptom.MISSING_LIBRARY in ran.symptoms:
            return stops(
                f"{name}: {ran.said}",
                "bring all packages to one snapshot's versions",
                fix=Fix.PROVISION,
                command=_SET_UP,
            )
    return None


def package_manager(seen: Seen) -> Finding | None:
    """Row 7."""
    if seen.facts is None:
        return None
    for manager in seen.facts.managers:
        on_terminal = manager.stdin.startswith(("/dev/pts/", "/dev/tty"))
        could_answer = manager.stdin not in {"", "/dev/null"}
        if manager.idle and could_answer and (on_terminal or manager.age_s > _WAITS_S):
            where = f" at {manager.stdin}" if on_terminal else ""
            told = f"{manager.name} (process {manager.pid}) waits{where} since {manager.age_s} s"
            return stops(
                f"{told}: a question about a configuration file, most likely",
                "end it, then dpkg --force-confold --configure -a",
                fix=Fix.FINISH_PACKAGES,
                command="clusterctl doctor --fix --limit {phones}",
            )
    if seen.facts.unfinished and not seen.facts.managers:
        told = f"dpkg did not finish {', '.join(seen.facts.unfinished[:4])}"
        fix = "clusterctl doctor --fix --limit {phones}"
        return stops(told, "dpkg --force-confold --configure -a", fix=Fix.FINISH_PACKAGES, command=fix)
    return None


def versions(seen: Seen) -> Finding | None:
    """Row 8."""
    if seen.facts is None:
        return None
    usual = seen.common.versions
    odd = [name for name, version in seen.facts.packages.items() if usual.get(name, version) != version]
    if not odd:
        return None
    odd.sort(key=lambda name: (name not in _MUST_MATCH, name))
    named = [f"{name} {seen.facts.packages[name]} (others {usual[name]})" for name in odd[:3]]
    told = ", ".join(named) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
    finding = stops if _MUST_MATCH & set(odd) else note
    return finding(told, "bring all phones to one snapshot", fix=Fix.PROVISION, command="clusterctl provision")


def shared_memory(seen: Seen) -> Finding | None:
    """Row 9."""
    for name in ("mpi", "mpirun"):
        ran = seen.facts.ran.get(name) if seen.facts else None
        if ran and (ran.rc == _KILLED_BY_SIGSYS or Symptom.BAD_SYSTEM_CALL in ran.symptoms):
            told = f"MPI_Init was killed (exit code {ran.rc}): {ran.said or 'Bad system call'}"
            return stops(told, "Open MPI of today, told shmem=mmap", fix=Fix.PROVISION, command=_SET_UP)
    return None


def mpi(seen: Seen) -> Finding | None:
    ran = seen.facts.ran.get("mpi") if seen.facts else None
    explained = environment(seen) or temporary_files(seen) or linker(seen) or shared_memory(seen) or set_up(seen)
    if ran is None or ran.rc == 0 or explained:
        return None
    told = f"MPI does not start (exit code {ran.rc}): {ran.said or 'no answer within 15 s'}"
    return stops(told, "set Open MPI and mpi4py up again", fix=Fix.PROVISION, command=_SET_UP)


def agent(seen: Seen) -> Finding | None:
    """Row 23."""
    ran = seen.facts.ran.get("agent") if seen.facts else None
    if ran is None or ran.rc == 0 or linker(seen):
        return None
    platform = seen.facts.ran.get("python") if seen.facts else None
    where = f" (sys.platform is {platform.said})" if platform and platform.rc == 0 else ""
    told = f"the agent ended with {ran.rc}: {ran.said or 'no word'}{where}"
    return stops(
        told, "the agent of this clusterctl guards what Android hides: install it", fix=Fix.PROVISION, command=_SET_UP
    )


def set_up(seen: Seen) -> Finding | None:
    if seen.facts is None or seen.facts.agent_installed is not False:
        return None
    return stops("no agent is installed", "set it up", fix=Fix.PROVISION, command=_SET_UP)


def opencl(seen: Seen) -> Finding | None:
    """Row 24."""
    if seen.facts is None or not seen.facts.agent_installed or linker(seen):
        return None
    remedy = "nothing: the processor computes; the GPU needs /vendor/lib64/libOpenCL.so before Termux's libraries"
    if seen.facts.opencl_library is False:
        return note("there is no /vendor/lib64/libOpenCL.so", remedy)
    ran = seen.facts.ran.get("opencl") or seen.facts.ran.get("clinfo")
    if ran is None or (ran.rc == 0 and ran.said):
        return None
    return note(f"OpenCL has no platform: {ran.said or 'clinfo -l lists nothing'}", remedy)


CHECKS: Final = (
    Check("linker", 6, "programs miss their libraries", linker),
    Check("package-manager", 7, "apt or dpkg waits for an answer", package_manager),
    Check("versions", 8, "package versions differ between phones", versions),
    Check("shared-memory", 9, "MPI_Init is killed for System V shared memory", shared_memory),
    Check("agent", 23, "the agent stumbles over what Android hides", agent),
    Check("opencl", 24, "OpenCL finds no device", opencl),
    Check("mpi", None, "MPI does not start on the phone", mpi),
    Check("set-up", None, "not provisioned", set_up),
)
