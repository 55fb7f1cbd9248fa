#!/data/data/com.termux/files/usr/bin/bash
# Managed by clusterctl: changes here are lost. Termux:Boot runs this script after the phone has booted.

log=$HOME/.clusterctl/logs/boot.log
mkdir -p "${log%/*}"
exec >>"$log" 2>&1
printf '%(%F %T)T started\n' -1

timeout 20 termux-wake-lock

# sshd runs in the foreground, as a child of this script: Android kills a daemon without a parent in Termux first.
# It is restarted when it exits; the pause grows, so that a broken configuration does not drain the battery.
pause=1
while true; do
  "$PREFIX/bin/sshd" -D
  printf '%(%F %T)T sshd exited with %d\n' -1 $?
  sleep $pause
  pause=$((pause < 60 ? pause * 2 : 60))
done
