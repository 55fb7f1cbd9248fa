# Prints facts about this session: environment, network and cores. Read-only; starts very few processes.
# One fact per line, fields separated by tabs, the first of which is `fact`.
fact() { local IFS=$'\t'; printf 'fact\t%s\n' "$*"; }
short() { local text=${1//[$'\t\r\n']/ }; printf %s "${text:0:600}"; }
have() { command -v "$1" >/dev/null 2>&1; }
for name in PATH PREFIX TMPDIR LD_PRELOAD; do
  fact env "$name" "$(short "${!name-}")"
done
[ -n "${TMPDIR-}" ] && [ -d "$TMPDIR" ] && [ -w "$TMPDIR" ] && fact tmp writable || fact tmp denied

# From here on with the PATH of Termux, so that the rest works even in a broken session.
prefix=${PREFIX:-/data/data/com.termux/files/usr}
case :${PATH-}: in *":$prefix/bin:"*) ;; *) export PATH=$prefix/bin:${PATH-} ;; esac

for ip in ip /system/bin/ip; do
  if have "$ip"; then
    while read -r _ name _ address _; do
      [ -n "$address" ] && fact address "${name%%@*}" "$address"
    done < <("$ip" -o -4 addr show 2>/dev/null)
    while read -r _ name _; do
      name=${name%:}
      [ -n "$name" ] && fact interface "${name%%@*}"
    done < <("$ip" -o link show 2>/dev/null)
    # The interface of the route to this computer: not always the one on which the connection arrived.
    if [ -n "${SSH_CONNECTION-}" ]; then
      route=$("$ip" -o -4 route get "${SSH_CONNECTION%% *}" 2>&1)
      case $route in
        *' dev '*) route=${route#* dev }; fact outbound "${route%% *}" ;;
        *unreachable*) fact outbound none ;;
      esac
    fi
    break
  fi
done

while read -r key value; do
  [ "$key" = Cpus_allowed_list: ] && fact cpus_allowed "$value"
done </proc/self/status
while IFS=: read -r _ controller group; do
  [ "$controller" = cpuset ] && fact cpuset "$(short "$group")"
done 2>/dev/null </proc/self/cgroup
for core in /sys/devices/system/cpu/cpu[0-9]*; do
  speed=
  read -r speed 2>/dev/null <"$core/cpu_capacity" || read -r speed 2>/dev/null <"$core/cpufreq/cpuinfo_max_freq"
  [ -n "$speed" ] && fact core "${core##*/cpu}" "$speed"
done 2>/dev/null

parameters=
[ -r "$HOME/.openmpi/mca-params.conf" ] && parameters=$(<"$HOME/.openmpi/mca-params.conf")
[[ $parameters == *btl_tcp_if_include* && $parameters == *oob_tcp_if_include* ]] && fact wired_only yes || fact wired_only no
