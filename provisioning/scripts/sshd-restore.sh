# Restores the previous sshd settings. Usage: sshd-restore.sh PID
file=$PREFIX/etc/ssh/sshd_config.d/50-clusterctl.conf
if [ -e "$file.previous" ]; then mv -f "$file.previous" "$file"; else rm -f "$file"; fi
kill -HUP "$1" || sshd
