# Prints the vital signs of the phone; works on any Termux, from a bare one to a busy worker.
# First line: `agent` (its telemetry follows as JSON) or `bare` (lines of "key value" follow).
# Megabytes are 10^6 bytes, like those of the agent; kilobytes of the kernel and df are 1024 bytes.
agent=.clusterctl/agent/current
if [ -e "$agent/phone_agent" ] && command -v python3 >/dev/null; then
  if telemetry=$(PYTHONPATH="$HOME/$agent" timeout 20 python3 -m phone_agent telemetry </dev/null); then
    printf 'agent\n%s\n' "$telemetry"
    exit
  fi
fi
echo bare
echo "epoch $(date +%s.%N)"
echo "agent $([ -e "$agent/phone_agent" ] && echo broken || echo none)"
while read -r key value _; do
  [ "$key" = MemAvailable: ] && echo "memory_free_mb $((value * 1024 / 1000000))"
done </proc/meminfo
echo "disk_free_mb $(df -Pk "$HOME" | { read -r; read -r _ _ _ free _; echo $((free * 1024 / 1000000)); })"
hottest=0
for zone in /sys/class/thermal/thermal_zone*/; do
  if read -r kind 2>/dev/null <"$zone/type" && [[ $kind == cpu* ]] && read -r value 2>/dev/null <"$zone/temp"; then
    [ "$value" -gt "$hottest" ] && hottest=$value
  fi
done 2>/dev/null
[ "$hottest" -ge 1000 ] && echo "temperature_c $((hottest / 1000))"
for file in cpuinfo_max_freq scaling_cur_freq; do
  fastest=0
  for cpu in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/$file; do
    read -r value 2>/dev/null <"$cpu" && [ "$value" -gt "$fastest" ] && fastest=$value
  done 2>/dev/null
  [ "$fastest" -gt 0 ] && echo "$file $((fastest / 1000))"
done
exit 0
