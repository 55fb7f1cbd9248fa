"""Checks of installed programs: do they start, are versions the same on all phones, is an installation stuck."""

from __future__ import annotations

from typing import Final

from orchestrator.health.checks.session import environment, temporary_files
from orchestrator.health.doctor_facts import Symptom
from orchestrator.health.finding import Check, Finding, Fix, note, stops
from orchestrator.health.observation import Observation

_PROVISION: Final = "clusterctl provision --limit {phones}"
_STUCK_AFTER_S: Final = 60
_MUST_MATCH: Final = frozenset({"openmpi", "python", "python-numpy"})
_KILLED_BY_SIGSYS: Final = 159


def linker(observation: Observation) -> Finding | None:
    for name in ("python", "mpirun", "agent", "mpi"):
        probe = observation.probe(name)
        if probe and probe.rc != 0 and Symptom.MISSING_LIBRARY in probe.symptoms:
            return stops(
                f"{name}: {probe.output}",
                "install all packages in the versions of one snapshot",
                fix=Fix.PROVISION,
                command=_PROVISION,
            )
    return None


def package_manager(observation: Observation) -> Finding | None:
    if observation.facts is None:
        return None
    for manager in observation.facts.package_managers:
        on_terminal = manager.stdin.startswith(("/dev/pts/", "/dev/tty"))
        could_answer = manager.stdin not in {"", "/dev/null"}
        if manager.idle and could_answer and (on_terminal or manager.age_s > _STUCK_AFTER_S):
            where = f" at {manager.stdin}" if on_terminal else ""
            evidence = f"{manager.name} (process {manager.pid}) has been waiting{where} for {manager.age_s} s"
            return stops(
                f"{evidence}, probably with a question about a configuration file",
                "end it, then run dpkg --force-confold --configure -a",
                fix=Fix.FINISH_PACKAGES,
                command="clusterctl doctor --fix --limit {phones}",
            )
    if observation.facts.unfinished_packages and not observation.facts.package_managers:
        evidence = f"dpkg did not finish installing {', '.join(observation.facts.unfinished_packages[:4])}"
        fix = "clusterctl doctor --fix --limit {phones}"
        return stops(evidence, "dpkg --force-confold --configure -a", fix=Fix.FINISH_PACKAGES, command=fix)
    return None


def versions(observation: Observation) -> Finding | None:
    if observation.facts is None:
        return None
    common = observation.cluster.versions
    different = [name for name, version in observation.facts.packages.items() if common.get(name, version) != version]
    if not different:
        return None
    different.sort(key=lambda name: (name not in _MUST_MATCH, name))
    named = [f"{name} {observation.facts.packages[name]} (others {common[name]})" for name in different[:3]]
    evidence = ", ".join(named) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
    finding = stops if _MUST_MATCH & set(different) else note
    return finding(
        evidence, "install the same snapshot on all phones", fix=Fix.PROVISION, command="clusterctl provision"
    )


def shared_memory(observation: Observation) -> Finding | None:
    for name in ("mpi", "mpirun"):
        probe = observation.probe(name)
        if probe and (probe.rc == _KILLED_BY_SIGSYS or Symptom.BAD_SYSTEM_CALL in probe.symptoms):
            evidence = f"MPI_Init was killed (exit code {probe.rc}): {probe.output or 'Bad system call'}"
            return stops(evidence, "update Open MPI and set shmem=mmap", fix=Fix.PROVISION, command=_PROVISION)
    return None


def mpi(observation: Observation) -> Finding | None:
    probe = observation.probe("mpi")
    explained = (
        environment(observation)
        or temporary_files(observation)
        or linker(observation)
        or shared_memory(observation)
        or not_provisioned(observation)
    )
    if probe is None or probe.rc == 0 or explained:
        return None
    evidence = f"MPI does not start (exit code {probe.rc}): {probe.output or 'no answer within 15 s'}"
    return stops(evidence, "install Open MPI and mpi4py again", fix=Fix.PROVISION, command=_PROVISION)


def agent(observation: Observation) -> Finding | None:
    probe = observation.probe("agent")
    if probe is None or probe.rc == 0 or linker(observation):
        return None
    platform = observation.probe("python")
    where = f" (sys.platform is {platform.output})" if platform and platform.rc == 0 else ""
    evidence = f"the agent failed with exit code {probe.rc}: {probe.output or 'no output'}{where}"
    return stops(
        evidence,
        "install the agent of this clusterctl, which handles what Android hides",
        fix=Fix.PROVISION,
        command=_PROVISION,
    )


def not_provisioned(observation: Observation) -> Finding | None:
    if observation.facts is None or observation.facts.agent_installed is not False:
        return None
    return stops("the agent is not installed", "provision the phone", fix=Fix.PROVISION, command=_PROVISION)


def opencl(observation: Observation) -> Finding | None:
    if observation.facts is None or not observation.facts.agent_installed or linker(observation):
        return None
    remedy = "none needed: the phone computes on the CPU; a GPU needs the vendor's libOpenCL.so"
    if observation.facts.opencl_library is False:
        return note("/vendor/lib64/libOpenCL.so is missing", remedy)
    probe = observation.probe("opencl") or observation.probe("clinfo")
    if probe is None or (probe.rc == 0 and probe.output):
        return None
    return note(f"OpenCL has no platform: {probe.output or 'clinfo -l lists nothing'}", remedy)


CHECKS: Final = (
    Check("linker", 6, "programs miss shared libraries", linker),
    Check("package-manager", 7, "apt or dpkg waits for input", package_manager),
    Check("versions", 8, "package versions differ between phones", versions),
    Check("shared-memory", 9, "MPI_Init is killed because it uses System V shared memory", shared_memory),
    Check("agent", 23, "the agent fails on files that Android hides", agent),
    Check("opencl", 24, "OpenCL finds no device", opencl),
    Check("mpi", None, "MPI does not start on the phone", mpi),
    Check("set-up", None, "the phone is not provisioned", not_provisioned),
)
