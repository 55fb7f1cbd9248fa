"""Checks our assumptions about phones on this phone, one after the other, each within its own time limit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from phone_agent.contract.assumptions import LAB_SETTING, Assumption, Check, CheckFunction, WiredNetwork
from phone_agent.selftest import compute, gpu, network, processor, storage, system, thermal_power
from phone_agent.selftest.isolated_check import run_isolated_check

HOST_KERNEL = "uses this computer's kernel"
HOST_CORES = "uses this computer's cores"
HOST_PYTHON = "uses this computer's Python"
HOST_NETWORK = "uses this computer's network stack"


def checks(wired: WiredNetwork) -> tuple[Check, ...]:
    return (*_system(), *_storage(), *_processor(), *_compute(), *_thermal_power(), *_network(wired))


def check_assumptions(wired: WiredNetwork, only: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Two rows per check for the host: one when it starts, one with its result."""
    for check in checks(wired):
        name = check.assumption.name
        if only and name not in only:
            continue
        yield {"check": name}
        result = run_isolated_check(check.run, check.limit_s)
        yield {"check": name, "status": result.status.value, "detail": result.detail, "evidence": result.evidence}


def _check(
    name: str,
    statement: str,
    run: CheckFunction,
    limit_s: float = 15.0,
    lab_caveat: str = "",
    *,
    required: bool = False,
) -> Check:
    return Check(Assumption(name, statement, required, lab_caveat), run, limit_s)


_required = partial(_check, required=True)


def _system() -> Iterator[Check]:
    yield _check("android", "The phone runs Android 9 to 12", system.android, lab_caveat=LAB_SETTING)
    yield _check("python", "In Termux, Python 3.13 and later reports sys.platform as android", system.python,
                 lab_caveat=HOST_PYTHON)  # fmt: skip
    yield _check("kernel", "A Galaxy S10+ runs Linux 4.14", system.kernel, lab_caveat=HOST_KERNEL)
    yield _check("page-size", "Memory pages are 4 KiB (the core also supports 16 KiB)", system.page_size,
                 lab_caveat=HOST_KERNEL)  # fmt: skip
    yield _check("selinux", "Termux runs in the SELinux domain untrusted_app_27, which may execute its own files",
                 system.selinux, lab_caveat="has no SELinux")  # fmt: skip
    yield _check("hidden-files", "Android hides /proc/stat, loadavg, uptime, vmstat, net and the battery's sysfs "
                 "files; meminfo and cpuinfo are readable", system.hidden_files,
                 lab_caveat="the lab hides these files itself")  # fmt: skip
    yield _check("memfd", "memfd_create works: state can outlive a process without flash wear",
                 system.memfd, lab_caveat=HOST_KERNEL)  # fmt: skip
    yield _check("shared-memory", "Python's shared_memory works, backed by files in $PREFIX/tmp", system.shared_memory,
                 lab_caveat=HOST_PYTHON)  # fmt: skip
    yield _check("sysv-shm", "System V shared memory is refused, or the caller is killed: Open MPI must not use it",
                 system.sysv_shm, lab_caveat="the lab refuses it itself")  # fmt: skip


def _storage() -> Iterator[Check]:
    yield _check("hard-links", "Hard links are unavailable: Python has no os.link, or it is refused",
                 storage.hard_links, lab_caveat="uses this computer's file system")  # fmt: skip
    yield _required("atomic-rename", "Renaming replaces a file atomically: a reader never sees a partial checkpoint",
                    storage.atomic_rename, 30)  # fmt: skip
    yield _check("disk-speed", "Storage writes at 20 MB/s or more", storage.speed, 30,
                 lab_caveat="uses this computer's memory as storage")  # fmt: skip


def _processor() -> Iterator[Check]:
    yield _check("cores", "The phone has eight cores; sysfs shows that 4 to 7 are the big ones", processor.cores,
                 lab_caveat=HOST_CORES)  # fmt: skip
    yield _check("packages", "physical_package_id may identify a cluster of cores, so Open MPI must not bind by it",
                 processor.packages, lab_caveat=HOST_CORES)  # fmt: skip
    yield _check("cpuset", "Processes started by sshd may use the big cores", processor.cpuset,
                 lab_caveat="the lab assigns the cores")  # fmt: skip
    yield _check("affinity", "A process can be pinned to each core that it may use", processor.affinity)
    yield _check("frequency", "Core frequencies are readable: they reveal throttling if no thermometer is readable",
                 processor.frequency, lab_caveat=HOST_CORES)  # fmt: skip
    yield _required("threads", "Threads of the core wait on a futex and start work within microseconds",
                    processor.threads)  # fmt: skip
    yield _check("speed", "Measured, not assumed: GFLOPS and memory bandwidth of the big cores", processor.speed, 30,
                 lab_caveat=HOST_CORES)  # fmt: skip


def _compute() -> Iterator[Check]:
    yield _required("tmpdir", "TMPDIR is writable: Open MPI puts its sockets there, and Android has no /tmp",
                    compute.tmpdir)  # fmt: skip
    yield _required("numpy", "Termux's numpy can be imported and multiplies correctly", compute.numpy, 60)
    yield _required("core", "The cross-compiled core loads and has kernels for this processor",
                    compute.core, 60)  # fmt: skip
    yield _required("kernels", "Every kernel agrees with numpy on this processor", compute.kernels, 400)
    yield _required("training", "Training with the core gives the same losses as training with numpy",
                    compute.training, 120)  # fmt: skip
    yield _required("mpi4py", "mpi4py builds against Termux's Open MPI and can be imported", compute.mpi4py, 100)
    yield _required("mpirun", "mpirun starts a rank on a phone", compute.mpirun, 100)


def _thermal_power() -> Iterator[Check]:
    yield _check("thermal-zones", "An app can read /sys/class/thermal (on some phones)", thermal_power.thermal_zones,
                 lab_caveat=LAB_SETTING)  # fmt: skip
    yield _check("thermal-service", "With the DUMP permission, dumpsys thermalservice reports temperatures",
                 thermal_power.thermal_service, lab_caveat=LAB_SETTING)  # fmt: skip
    yield _check("temperature", "At least one thermometer is readable", thermal_power.temperature, 30,
                 lab_caveat=LAB_SETTING)  # fmt: skip
    yield _check("battery", "termux-battery-status responds within 6 s if Termux:API is installed",
                 thermal_power.battery_status, lab_caveat=LAB_SETTING)  # fmt: skip
    yield _check("charging", "The phone charges through its Ethernet adapter (PD pass-through)", thermal_power.charging,
                 lab_caveat=LAB_SETTING)  # fmt: skip
    yield _check("wake-lock", "termux-wake-lock works over ssh", thermal_power.wake_lock, 25, lab_caveat=LAB_SETTING)
    yield _check("sleep-precision", "With the wake lock held, a sleep lasts as long as requested",
                 thermal_power.sleep_precision)  # fmt: skip
    yield _check("opencl", "The vendor's OpenCL driver is found only if the vendor libraries precede Termux's",
                 gpu.opencl, 60, lab_caveat="has no GPU")  # fmt: skip


def _network(wired: WiredNetwork) -> Iterator[Check]:
    yield _required("wired-address", "The wired interface has the address in the inventory",
                    network.wired_address(wired.address, wired.interface))  # fmt: skip
    yield _check("other-interfaces", "With Wi-Fi and mobile data off, no other interface has an address",
                 network.other_interfaces(wired.interface))  # fmt: skip
    yield _check("listen-address", "Our preloaded library binds Open MPI's listening sockets to the wired address",
                 network.listen_address(wired.address))  # fmt: skip
    yield _check("mtu", "The MTU of the wired interface is 1500 bytes", network.mtu(wired.interface),
                 lab_caveat=HOST_NETWORK)  # fmt: skip
    yield _check("congestion-control", "TCP congestion control is loss-based (bic on a Galaxy S10+), not BBR, which "
                 "slowed rings of virtual phones", network.congestion_control, lab_caveat=HOST_NETWORK)  # fmt: skip
    yield _required("outbound", "Without internet access, the wired network stays the default: the phone can connect "
                    "to this computer", network.outbound(wired.host, wired.port), 25)  # fmt: skip
