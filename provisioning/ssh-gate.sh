# Written by clusterctl: changes here are lost. All that the phones' key can start here, whatever was asked for.
# What a neighbour asks for is data: it is matched as a whole, and only then run. orted is Open MPI's daemon; its words
# are plain ones, or in quotes with nothing in them that a shell would read as anything else.
LC_ALL=C
plain='[A-Za-z0-9_.,:=/@%+-]+'
quoted='"[^"$`\!]*"'
orted="^ *orted( +($plain|$quoted))* *\$"
receive='@RECEIVE@'
if [[ $SSH_ORIGINAL_COMMAND == "$receive" || $SSH_ORIGINAL_COMMAND =~ $orted ]]; then
  unset LC_ALL
  exec bash -c "$SSH_ORIGINAL_COMMAND"
fi
echo "this key starts Open MPI's daemon and takes datasets, and nothing else" >&2
exit 126
