# Ends package managers that wait for input, and finishes their work without asking. Appended to processes.sh.
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
declare -A spent
while read -r pid _; do spent[$pid]=$(ticks "$pid"); done < <(managers)
sleep 1
waiting=()
for pid in "${!spent[@]}"; do
  case $(readlink "/proc/$pid/fd/0") in /dev/null | '') continue ;; esac
  [ "$(ticks "$pid")" = "${spent[$pid]}" ] && waiting+=("$pid")
done
for signal in TERM KILL; do
  left=
  for pid in "${waiting[@]}"; do
    [ "$(ticks "$pid")" = "${spent[$pid]}" ] && kill -"$signal" "$pid" && left=yes
  done
  [ -z "$left" ] || sleep 2
done
timeout -k 5 150 dpkg --force-confdef --force-confold --configure -a </dev/null
