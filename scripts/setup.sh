#!/usr/bin/env bash
# Installs everything that a fresh Debian or Ubuntu machine needs; does nothing if it is already installed.
# --bench adds what the benchmarks compare with: PyTorch, MNN, other orchestrators, and a model of the CPU of a phone.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=dev
[ "${1:-}" != --bench ] || extras=dev,bench

# System packages. The virtual phones use their programs.
system_packages=(
  openssh-server openssh-client  # sshd and ssh of the phones
  openmpi-bin libopenmpi-dev     # MPI of the phones, and the headers to build mpi4py
  python3 python3-venv python3-dev python3-pip python3-setuptools python3-numpy  # Python of the phones
  libopenblas0-pthread           # python3-numpy defaults to the slow reference BLAS
  gcc libc6-dev make             # mpi4py is compiled on a phone
  pocl-opencl-icd ocl-icd-libopencl1  # OpenCL driver of the phones, on the CPU of this computer
  g++ cmake ninja-build opencl-headers  # pyopencl is compiled on a phone
  iproute2 iperf3 util-linux procps  # links, link speed tests, namespaces
  dataset-fashion-mnist          # training data of the demo
  adb                            # phones on USB, and the tests of that
  qemu-user-static               # emulates the CPU of a phone in kernel tests
)

[ $extras = dev ] || system_packages+=(
  llvm-19   # llvm-mca-19 counts the cycles of the hot loops
  chromium  # renders the report of `bench device` in tests
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
  # Keep openssh-server from starting a system-wide sshd: the phones run their own, on other ports.
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

# Updates the virtual environment only if pyproject.toml or the extras changed.
install_python_packages() {
  local stamp=.venv/.stamp wanted
  wanted="$(sha256sum pyproject.toml | cut -d' ' -f1) $extras"
  # The bench extras include the dev extras, so an environment with both is also valid for dev.
  [ -f "$stamp" ] && [[ "$(cat "$stamp")" == "$wanted"* ]] && return
  echo "setup: installing Python packages into .venv"
  [ -x .venv/bin/python ] || "$(pick_python)" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
  echo "$wanted" >"$stamp"
}

# Skipped if the core is already built from these sources; otherwise it takes up to a minute of CPU time.
build_core() {
  .venv/bin/python -m phone_agent.core >/dev/null || { echo "setup: the compute core cannot be built" >&2; exit 1; }
}

install_system_packages
install_python_packages
build_core
