# Managed by clusterctl: changes here are lost. Forced command of the key of the phones: the only commands it may run.
# The requested command is data: it is matched as a whole before it is run. orted is the daemon of Open MPI; its arguments
# are plain words, or quoted strings without characters that are special to a shell.
plain='[A-Za-z0-9_.,:=/@%+-]+'
quoted='"[^"$`\!]*"'
orted="^ *orted( +($plain|$quoted))* *\$"
receive='@RECEIVE@'
matches() { local LC_ALL=C; [[ $SSH_ORIGINAL_COMMAND =~ $orted ]]; }
start=(bash -c "$SSH_ORIGINAL_COMMAND")
if [[ $SSH_ORIGINAL_COMMAND == "$receive" ]]; then
  exec "${start[@]}"
elif matches; then
  # It listens on the address at which this connection arrived: the wired one.
  read -r _ _ wired _ <<<"$SSH_CONNECTION"
  [ ! -r ~/.clusterctl/wired ] || start=(bash ~/.clusterctl/wired "$wired" "${start[@]}")
  exec "${start[@]}"
fi
echo "this key may only start the Open MPI daemon and receive datasets" >&2
exit 126
