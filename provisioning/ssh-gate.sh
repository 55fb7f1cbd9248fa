# Written by clusterctl: changes here are lost. All that the phones' key can start here, whatever was asked for.
# What a neighbour asks for is data: it is matched as a whole, and only then run. orted is Open MPI's daemon; its words
# are plain ones, or in quotes with nothing in them that a shell would read as anything else.
plain='[A-Za-z0-9_.,:=/@%+-]+'
quoted='"[^"$`\!]*"'
orted="^ *orted( +($plain|$quoted))* *\$"
receive='@RECEIVE@'
matches() { local LC_ALL=C; [[ $SSH_ORIGINAL_COMMAND =~ $orted ]]; }
start=(bash -c "$SSH_ORIGINAL_COMMAND")
if [[ $SSH_ORIGINAL_COMMAND == "$receive" ]]; then
  exec "${start[@]}"
elif matches; then
  # It listens where this connection came in: on the wired address.
  read -r _ _ wired _ <<<"$SSH_CONNECTION"
  [ ! -r ~/.clusterctl/wired ] || start=(bash ~/.clusterctl/wired "$wired" "${start[@]}")
  exec "${start[@]}"
fi
echo "this key starts Open MPI's daemon and takes datasets, and nothing else" >&2
exit 126
