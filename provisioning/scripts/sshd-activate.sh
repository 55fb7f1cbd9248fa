# Puts our sshd settings in use. Usage: sshd-activate.sh PID KEY; standard input: the drop-in
# KEY, this computer's public key, must be allowed to log in before passwords are switched off.
# Exit codes: 3 sshd refuses the settings, 4 they have no effect, 5 KEY is not authorised. Then all is as before.
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
