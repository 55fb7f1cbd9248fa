"""Is this phone what we believe phones are? One belief after the other, each answered within its own time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from phone_agent.contract.assumptions import SCENARIO, Belief, Check, Look, WiredNetwork
from phone_agent.selftest import compute, gpu, network, processor, storage, system, thermal_power
from phone_agent.selftest.bounded import bounded

ITS_KERNEL = "its kernel is this computer's"
ITS_CORES = "its cores are this computer's"


def checks(where: WiredNetwork) -> tuple[Check, ...]:
    return (*_system(), *_storage(), *_processor(), *_compute(), *_climate(), *_network(where))


def examine(where: WiredNetwork, only: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """For each check that it has begun, then what was found. Lines for the host, as they come."""
    for check in checks(where):
        name = check.belief.name
        if only and name not in only:
            continue
        yield {"check": name}
        found = bounded(check.look, check.limit_s)
        yield {"check": name, "status": found.status.value, "told": found.told, "evidence": found.evidence}


def _check(name: str, settles: str, look: Look, limit_s: float = 15.0, lab: str = "", *, needed: bool = False) -> Check:
    return Check(Belief(name, settles, needed, lab), look, limit_s)


_needed = partial(_check, needed=True)


def _system() -> Iterator[Check]:
    yield _check("android", "The phones have Android 9 to 12", system.android, lab=SCENARIO)
    yield _check("python", "Termux's Python 3.13 and later says sys.platform is android", system.python,
                 lab="its Python is this computer's")  # fmt: skip
    yield _check("kernel", "A Galaxy S10+ runs Linux 4.14", system.kernel, lab=ITS_KERNEL)
    yield _check("page-size", "Memory pages have 4 KiB; the core is built for 16 KiB as well", system.page_size,
                 lab=ITS_KERNEL)  # fmt: skip
    yield _check("selinux", "Termux runs in the SELinux domain untrusted_app_27, which may run its own files",
                 system.selinux, lab="it has no SELinux")  # fmt: skip
    yield _check("hidden-files", "Android hides /proc/stat, loadavg, uptime, vmstat, net and the battery's sysfs; "
                 "meminfo and cpuinfo can be read", system.hidden_files, lab="the lab hides them itself")  # fmt: skip
    yield _check("memory-file", "memfd_create works: state can outlive a process without wearing the flash",
                 system.memory_file, lab=ITS_KERNEL)  # fmt: skip
    yield _check("shared-memory", "Python's shared_memory works, on files in $PREFIX/tmp", system.shared_memory,
                 lab="its Python is this computer's")  # fmt: skip
    yield _check("system-v", "System V shared memory is refused, or kills who asks: Open MPI must not",
                 system.system_v, lab="the lab refuses it itself")  # fmt: skip


def _storage() -> Iterator[Check]:
    yield _check("hard-links", "There are no hard links: Python has no os.link, or it is refused", storage.hard_links,
                 lab="its file system is this computer's")  # fmt: skip
    yield _needed("replacing", "A checkpoint is there whole or not at all: renaming replaces a file at once",
                  storage.replacing, 30)  # fmt: skip
    yield _check("disk-speed", "Storage takes a checkpoint at 20 MB/s or more", storage.speed, 30,
                 lab="its storage is this computer's memory")  # fmt: skip


def _processor() -> Iterator[Check]:
    yield _check("cores", "Eight cores; sysfs tells that 4 to 7 are the big ones", processor.cores, lab=ITS_CORES)
    yield _check("packages", "physical_package_id may name a cluster of cores, so Open MPI must not bind by it",
                 processor.packages, lab=ITS_CORES)  # fmt: skip
    yield _check("cpuset", "What sshd starts may use the big cores", processor.cpuset, lab="the lab deals out cores")
    yield _check("affinity", "A process can be pinned to each core it may use", processor.affinity)
    yield _check("frequency", "Frequencies of the cores can be read: where no thermometer is, they show heat",
                 processor.frequency, lab=ITS_CORES)  # fmt: skip
    yield _needed("threads", "Threads of the core wait on a futex and take work in microseconds", processor.threads)
    yield _check("speed", "Measured, not assumed: multiply-adds and memory of the big cores", processor.speed, 30,
                 lab=ITS_CORES)  # fmt: skip


def _compute() -> Iterator[Check]:
    yield _needed("tmpdir", "TMPDIR can be written: Open MPI's sockets are there, Android has no /tmp", compute.tmpdir)
    yield _needed("numpy", "Termux's numpy imports and multiplies right", compute.numpy, 60)
    yield _needed("core", "The core built on another computer loads here, with kernels for this processor",
                  compute.core, 60)  # fmt: skip
    yield _needed("kernels", "Every kernel gives numpy's numbers on this processor", compute.kernels, 400)
    yield _needed("training", "Training by the core goes as numpy's does", compute.training, 120)
    yield _needed("mpi4py", "mpi4py builds against Termux's Open MPI and imports", compute.mpi4py, 100)
    yield _needed("mpirun", "mpirun starts a rank on a phone", compute.mpirun, 100)


def _climate() -> Iterator[Check]:
    yield _check("thermal-zones", "An application may be able to read /sys/class/thermal", thermal_power.thermal_zones,
                 lab=SCENARIO)  # fmt: skip
    yield _check("thermal-service", "With the DUMP permission, dumpsys thermalservice tells temperatures",
                 thermal_power.thermal_service, lab=SCENARIO)  # fmt: skip
    yield _check("temperature", "Some thermometer can be read", thermal_power.temperature, 30, lab=SCENARIO)
    yield _check("battery", "termux-battery-status answers within 6 s where Termux:API is installed",
                 thermal_power.battery_answers, lab=SCENARIO)  # fmt: skip
    yield _check("charging", "The phone is fed through its Ethernet adapter (PD pass-through)", thermal_power.charging,
                 lab=SCENARIO)  # fmt: skip
    yield _check("wake-lock", "termux-wake-lock can be called over ssh", thermal_power.wake_lock, 25, lab=SCENARIO)
    yield _check("sleeping", "With the wake lock held, naps last as long as asked for", thermal_power.sleeping)
    yield _check("opencl", "The vendor's OpenCL is found with its libraries before Termux's, not the other way round",
                 gpu.opencl, 60, lab="it has no graphics processor")  # fmt: skip


def _network(where: WiredNetwork) -> Iterator[Check]:
    yield _needed("wire", "The phone has its address on the wired interface",
                  network.has_wire(where.address, where.interface))  # fmt: skip
    yield _check("other-ways", "With Wi-Fi and mobile data off, no other interface has an address",
                 network.other_ways(where.interface))  # fmt: skip
    yield _check("listeners", "A library of ours can be preloaded, and keeps Open MPI's listeners on the wired address",
                 network.listens_on(where.address))  # fmt: skip
    yield _check("frame-size", "Ethernet frames have 1500 bytes", network.frame_size(where.interface),
                 lab="its network is this computer's")  # fmt: skip
    yield _check("congestion", "TCP finds its rate by losses (bic on a Galaxy S10+), not by BBR, with which rings of "
                 "virtual phones were slower", network.congestion, lab="its network is this computer's")  # fmt: skip
    yield _needed("calls-out", "The wired network stays the default without internet: what a phone calls, it reaches",
                  network.calls_out(where.host, where.port), 25)  # fmt: skip
