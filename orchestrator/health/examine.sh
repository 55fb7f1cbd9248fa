# Collects the facts of `doctor` in less than 25 s. Appended to session.sh and processes.sh.
# Arguments: address and port of a neighbor, or none.
# Everything that may hang has a timeout. Writes at most two small files, and removes them. Commands run one after another,
# except two that mostly wait: Android 12 may kill the oldest of more than 32 processes, and the oldest is sshd.
export LC_ALL=C
neighbor=${1-} port=${2-}

# probe NAME SECONDS COMMAND…: prints its exit code and the end of its output. Skipped when no time is left.
probe() {
  local name=$1 seconds=$2 output left=$((23 - SECONDS))
  shift 2
  [ "$left" -ge 1 ] || return
  [ "$seconds" -le "$left" ] || seconds=$left
  output=$(timeout -k 1 "$seconds" "$@" </dev/null 2>&1 | tail -c 600; exit "${PIPESTATUS[0]}")
  local rc=$?
  fact probe "$name" "$rc" "$(short "$output")"
}
# pause SECONDS: sleeps without starting a process, by reading from a pipe that is never written.
exec {silent}<> <(:)
pause() { read -rt "$1" -u "$silent"; }

fact begin "$EPOCHREALTIME"
SECONDS=0
count=0
for process in /proc/[0-9]*; do [ -O "$process" ] && count=$((count + 1)); done
fact processes "$count"
have termux-battery-status && probe battery 8 termux-battery-status &

# A package manager that uses no CPU time between here and the second reading is idle.
declare -A spent
while read -r pid _; do spent[$pid]=$(ticks "$pid"); done < <(managers)

# Measure sleep first, while nothing else runs. With the `sleep` program, because `read -t` restarts after an interruption.
slept=99999
for _ in 1 2; do
  before=${EPOCHREALTIME/./}
  sleep 1
  took=$(((${EPOCHREALTIME/./} - before) / 1000))
  [ "$took" -lt "$slept" ] && slept=$took
  [ "$took" -le 1300 ] && break
done
fact slept_ms "$slept"

while read -r pid name; do
  [ -n "${spent[$pid]-}" ] || continue
  now=$(ticks "$pid")
  read -r mine _ < <(ticks $$)
  age=$(((mine - ${now% *}) / 100 + SECONDS))
  fact manager "$pid" "$name" "$age" "$(readlink "/proc/$pid/fd/0")" "$([ "$now" = "${spent[$pid]}" ] && echo idle || echo busy)"
done < <(managers)

# The clock of the cores under load: idle cores are slow on purpose.
if [ -r /sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq ]; then
  while :; do :; done &
  load=$!
  pause 0.6
  now=0 most=0
  for core in /sys/devices/system/cpu/cpu[0-9]*/cpufreq; do
    read -r value 2>/dev/null <"$core/scaling_cur_freq" && [ "$value" -gt "$now" ] && now=$value
    read -r value 2>/dev/null <"$core/cpuinfo_max_freq" && [ "$value" -gt "$most" ] && most=$value
  done
  kill "$load" && wait "$load" 2>/dev/null
  fact frequency "$((now / 1000))" "$((most / 1000))"
fi

if [ -n "$neighbor" ] && [ -r "$HOME/.ssh/clusterctl_ed25519" ]; then
  probe neighbor 9 ssh -p "$port" -o ConnectTimeout=6 -o ConnectionAttempts=1 "$neighbor" true &
fi
agent=$HOME/.clusterctl/agent/current
[ -e "$agent/phone_agent" ] && fact agent installed || fact agent missing
if have python3; then
  probe python 10 python3 -c 'import sys; print(sys.platform)'
  [ -e "$agent/phone_agent" ] && PYTHONPATH=$agent probe agent 15 bash -c '
    python3 -m phone_agent telemetry 2>&1 >/dev/null | tail -n 1  # the last line of a traceback is the error
    exit "${PIPESTATUS[0]}"'
  if have mpirun; then
    probe mpi 15 mpirun -np 1 python3 -c 'from mpi4py import MPI; MPI.COMM_WORLD.Barrier()'
  fi
  if [ -e /vendor/lib64/libOpenCL.so ]; then
    probe opencl 6 python3 -c '
import ctypes
count = ctypes.c_uint(0)
ctypes.CDLL("/vendor/lib64/libOpenCL.so").clGetPlatformIDs(0, None, ctypes.byref(count))
print(count.value, "platforms")
raise SystemExit(count.value == 0)'
  fi
fi
[ -e /vendor/lib64/libOpenCL.so ] && fact opencl_library present || fact opencl_library missing
have clinfo && LD_LIBRARY_PATH=/vendor/lib64:$prefix/lib probe clinfo 6 clinfo -l
have mpirun && probe mpirun 10 mpirun --version

fact ssh "$(short "$(timeout 5 ssh -V 2>&1 </dev/null)")"
while read -r key value; do
  [ "$key" = persourcepenaltyexemptlist ] && fact penalty_exempt "$(short "$value")"
done < <(timeout 5 sshd -T 2>/dev/null </dev/null)
fact sdk "$(/system/bin/getprop ro.build.version.sdk 2>/dev/null)"
if [ -x /system/bin/logcat ]; then
  fact phantom_kill "$(short "$(timeout 3 /system/bin/logcat -d -t 2000 2>/dev/null </dev/null | grep -a 'Trimming phantom' | tail -n 1)")"
fi

find_sshd
fact sshd_supervisor "$supervisor"
script=$HOME/.termux/boot/00-clusterctl
if [ -f "$script" ]; then
  read -r mine _ < <(ticks $$)
  booted=$((${EPOCHREALTIME%.*} - mine / 100))
  fact boot_script "$([ "$(stat -c %Y "$script")" -lt "$booted" ] && echo before-boot || echo since-boot)" "$((mine / 100))"
else
  fact boot_script missing 0
fi
if have termux-wake-lock; then
  held=$(cat "$HOME/.clusterctl/wake-lock" 2>/dev/null)
  boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
  [ "$held" = "$boot $sshd" ] && fact wake_lock held || fact wake_lock free
fi

# In megabytes of 10^6 bytes, like the agent.
fact disk_mb "$(df -Pk "$HOME" 2>/dev/null | { read -r _; read -r _ _ _ free _ && echo $((free * 1024 / 1000000)); })"
while read -r key value _; do
  [ "$key" = MemAvailable: ] && fact memory_mb $((value * 1024 / 1000000))
done </proc/meminfo
zones=denied
for zone in /sys/class/thermal/thermal_zone*/temp; do
  read -r _ 2>/dev/null <"$zone" && zones=readable && break
done
fact thermal "$zones"

# Shebang lines and hard links, which some phones do not allow.
try=$HOME/.clusterctl-doctor.$$
if { printf '#!/usr/bin/env bash\necho works\n' >"$try"; } 2>/dev/null && [ -s "$try" ]; then
  chmod 700 "$try"
  probe shebang 5 bash -c '"$0"' "$try"
  probe link 5 ln -- "$try" "$try.2"
fi
rm -f -- "$try" "$try.2"

wait  # output of parallel writers stays intact only if it is short
dpkg-query -W -f 'fact\tpackage\t${Package}\t${Version}\t${db:Status-Status}\n' 2>/dev/null
fact end "$EPOCHREALTIME"
