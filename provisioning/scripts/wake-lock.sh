# Keeps Android from sleeping while Termux runs, and remembers for which boot and which sshd. Usage: wake-lock.sh PID
timeout 20 termux-wake-lock </dev/null || exit
mkdir -p "$HOME/.clusterctl/logs"
echo "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $1" >"$HOME/.clusterctl/wake-lock"
