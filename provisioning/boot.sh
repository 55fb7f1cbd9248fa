#!/data/data/com.termux/files/usr/bin/bash
# Written by clusterctl: changes here are lost. Run by Termux:Boot when the phone has started.

log=$HOME/.clusterctl/logs/boot.log
mkdir -p "${log%/*}"
exec >>"$log" 2>&1
printf '%(%F %T)T started\n' -1

timeout 20 termux-wake-lock

# In the foreground and under this script: a daemonised sshd has no parent in Termux and is killed first.
# It comes back when it ends; the pause grows, so that a broken configuration does not eat the battery.
pause=1
while true; do
  "$PREFIX/bin/sshd" -D
  printf '%(%F %T)T sshd ended with %d\n' -1 $?
  sleep $pause
  pause=$((pause < 60 ? pause * 2 : 60))
done
