# Acquires the wake lock, which keeps Android awake while Termux runs, and records the boot id and PID of sshd.
# Usage: wake-lock.sh PID
timeout 20 termux-wake-lock </dev/null || exit
mkdir -p "$HOME/.clusterctl/logs"
echo "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $1" >"$HOME/.clusterctl/wake-lock"
