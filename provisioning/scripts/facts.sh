# Prints facts about the phone and its Termux. Usage: facts.sh FILE...
# One fact per line, fields separated by tabs; multi-line texts in base64. Read-only, and needs no Python.
# Each FILE is '~/…' or '$PREFIX/…'; its mode and sha256 are printed.
export LC_ALL=C
fact() { local IFS=$'\t'; printf '%s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
expand() {
  case $1 in
    '~/'*) path=$HOME/${1#\~/} ;;
    '$PREFIX/'*) path=$PREFIX/${1#\$PREFIX/} ;;
    *) path=$1 ;;
  esac
}
encoded() { [ -f "$2" ] && [ -r "$2" ] && fact text "$1" "$(base64 -w0 <"$2")"; }

fact begin 1
fact epoch "$EPOCHREALTIME"

# termux-battery-status hangs without its app: start it first, with a timeout, and read its output last.
if have termux-battery-status; then
  exec 7< <(timeout 8 termux-battery-status </dev/null 2>/dev/null | base64 -w0)
fi

fact uid "$(id -u)"
fact prefix "$PREFIX"
fact home "$HOME"
fact arch "$(dpkg --print-architecture 2>/dev/null)"
fact ssh "$(ssh -V 2>&1)"
fact disk_kb "$(df -Pk "$HOME" 2>/dev/null | { read -r _; read -r _ _ _ available _ && printf %s "$available"; })"

# The listening sshd is the outermost sshd among the ancestors of this shell.
pid=$$ sshd=
while [ "$pid" -gt 1 ] && [ -r "/proc/$pid/status" ]; do
  name= parent=0
  while read -r key value; do
    case $key in Name:) name=$value ;; PPid:) parent=$value && break ;; esac
  done <"/proc/$pid/status"
  case $name in sshd*) sshd=$pid ;; esac
  pid=$parent
done
fact sshd_pid "$sshd"
sshd -T 2>/dev/null | while read -r key value; do
  case $key in
    passwordauthentication | kbdinteractiveauthentication | pubkeyauthentication | maxstartups | usedns) ;;
    clientalive* | disableforwarding | persourcepenaltyexemptlist) ;;
    *) continue ;;
  esac
  fact sshd_setting "$key" "$value"
done

for ip in ip /system/bin/ip; do
  if have "$ip"; then
    "$ip" -o -4 addr show 2>/dev/null | while read -r _ interface _ address _; do
      fact address "${interface%%@*}" "$address"
    done
    break
  fi
done

dpkg-query -W -f 'package\t${Package}\t${Version}\t${db:Status-Status}\n' 2>/dev/null

labels=() paths=()
for label in "$@"; do
  expand "$label"
  [ -f "$path" ] && [ -r "$path" ] && labels+=("$label") && paths+=("$path")
done
if [ ${#paths[@]} -gt 0 ]; then
  mapfile -t modes < <(stat -c %a -- "${paths[@]}")
  mapfile -t sums < <(sha256sum -- "${paths[@]}")
  for i in "${!paths[@]}"; do
    fact file "${labels[i]}" "${modes[i]}" "${sums[i]%% *}"
  done
fi
encoded authorized_keys "$HOME/.ssh/authorized_keys"
encoded ssh_config "$HOME/.ssh/config"

if have termux-wake-lock; then
  held=$(cat "$HOME/.clusterctl/wake-lock" 2>/dev/null)
  boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
  [ "$held" = "$boot $sshd" ] && fact wake_lock held || fact wake_lock free
fi

if have python3; then
  modules=$(python3 -c '
import sys, sysconfig
from importlib import metadata
def fact(*fields):
    print(*fields, sep="\t")
fact("python", sys.implementation.cache_tag, sysconfig.get_platform())
for name in ("mpi4py", "pyopencl"):
    try:
        module = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    fact(name, module.version, " ".join((module.read_text("direct_url.json") or "").split()))
' 2>/dev/null)
  [ -n "$modules" ] && printf '%s\n' "$modules"
  # Is there a GPU that needs pyopencl? Drivers may hang or crash: a separate process, with a timeout.
  driver=/vendor/lib64/libOpenCL.so
  if [ -e "$driver" ] && ! [[ $modules == *pyopencl$'\t'* ]]; then
    fact opencl_devices "$(timeout 10 python3 -c '
import ctypes, sys
cl, count = ctypes.CDLL(sys.argv[1]), ctypes.c_uint()
cl.clGetPlatformIDs(0, None, ctypes.byref(count))
platforms = (ctypes.c_void_p * max(1, count.value))()
cl.clGetPlatformIDs(count, platforms, None)
devices = 0
for platform in platforms[: count.value]:
    found = ctypes.c_uint()
    cl.clGetDeviceIDs(ctypes.c_void_p(platform), ctypes.c_ulong(0xFFFFFFFF), 0, None, ctypes.byref(found))
    devices += found.value
print(devices)
' "$driver" 2>/dev/null)"
  fi
fi

agent=$HOME/.clusterctl/agent/current
if [ -d "$agent/" ]; then
  tree=$(cd "$agent/" && find . -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
  release=$(readlink "$agent")
  fact agent "${release##*/}" "${tree%% *}"
fi
encoded selftest "$HOME/.clusterctl/selftest"

if have termux-battery-status; then
  read -r battery <&7
  fact text battery "$battery"
fi
fact end 1
