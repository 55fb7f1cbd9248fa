# Activates our sshd settings. Usage: sshd-activate.sh PID KEY; standard input: the drop-in file
# KEY, the public key of the host, must be authorized before passwords are turned off.
# Exit codes: 3 sshd rejects the settings, 4 they have no effect, 5 KEY is not authorized. The old settings remain then.
set -eu
umask 077
pid=$1 key=$2
grep -qF -- "$key" "$HOME/.ssh/authorized_keys" || exit 5
directory=$PREFIX/etc/ssh/sshd_config.d
file=$directory/50-clusterctl.conf
mkdir -p "$directory"
rm -f "$file.previous"
[ ! -e "$file" ] || cp "$file" "$file.previous"
restore() { if [ -e "$file.previous" ]; then mv -f "$file.previous" "$file"; else rm -f "$file"; fi; }
cat >"$file.new"
mv -f "$file.new" "$file"
sshd -t || { restore; exit 3; }
sshd -T | grep -qix 'passwordauthentication no' || { restore; exit 4; }
kill -HUP "$pid"
