#!/usr/bin/env bash
# Everything a fresh Debian or Ubuntu machine needs, and nothing when it is all there.
# With --bench also what the benchmarks compare with: PyTorch, MNN, other orchestrators, a model of a phone's processor.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=dev
[ "${1:-}" != --bench ] || extras=dev,bench

# What only the system has. The virtual phones borrow their programs from these packages.
system_packages=(
  openssh-server openssh-client  # the phones' sshd and ssh
  openmpi-bin libopenmpi-dev     # the phones' MPI, and the headers mpi4py is built with
  python3 python3-venv python3-dev python3-pip python3-setuptools python3-numpy  # the phones' Python
  libopenblas0-pthread           # python3-numpy's default BLAS is the slow reference one
  gcc libc6-dev make             # mpi4py is compiled on a phone
  pocl-opencl-icd ocl-icd-libopencl1  # the phones' OpenCL driver: this computer's processor
  g++ cmake ninja-build opencl-headers  # pyopencl is compiled on a phone
  iproute2 iperf3 util-linux procps  # links, their speed, namespaces
  dataset-fashion-mnist          # what the demo trains on
  adb                            # phones on USB, and its tests
  qemu-user-static               # a phone's processor, for the kernels' tests
)

[ $extras = dev ] || system_packages+=(
  llvm-19   # llvm-mca-19 counts the cycles of the hot loops
  chromium  # shows the report of bench device, in its tests
)

missing_packages() {
  local package
  for package in "${system_packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

install_system_packages() {
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  if ! command -v apt-get >/dev/null; then
    echo "setup: this is not Debian or Ubuntu; please install: ${missing[*]}" >&2
    exit 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && command -v sudo >/dev/null; }; then
      echo "setup: neither root nor sudo; please ask for: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  # openssh-server would start a system-wide sshd; the phones bring their own, on their own ports.
  local policy=/usr/sbin/policy-rc.d made_policy=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    made_policy=1
  fi
  local rc=0
  { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } || rc=$?
  [ -z "$made_policy" ] || "${as_root[@]}" rm -f "$policy"
  [ $rc -eq 0 ] || { echo "setup: apt-get failed; needed: ${missing[*]}" >&2; exit $rc; }
}

pick_python() {
  local candidate
  for candidate in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: Python 3.11 or newer with venv is needed" >&2
  exit 1
}

# The virtual environment is made again only when what it is made from changed.
install_python_packages() {
  local stamp=.venv/.stamp wanted
  wanted="$(sha256sum pyproject.toml | cut -d' ' -f1) $extras"
  # What the benchmarks need holds what all else needs: it need not be undone.
  [ -f "$stamp" ] && [[ "$(cat "$stamp")" == "$wanted"* ]] && return
  echo "setup: installing Python packages into .venv"
  [ -x .venv/bin/python ] || "$(pick_python)" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
  echo "$wanted" >"$stamp"
}

# Takes seconds; nothing when the core of these sources is there already.
build_core() {
  .venv/bin/python -m phone_agent.core >/dev/null || { echo "setup: the compute core cannot be built" >&2; exit 1; }
}

install_system_packages
install_python_packages
build_core
