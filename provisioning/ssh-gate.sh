# Managed by clusterctl: changes here are lost. Forced command of the key of the phones: the only commands it may run.
# The requested command is data: it is compared as a whole before it is run. Open MPI's daemons are not started by this
# key but by the computer of the cluster.
case $SSH_ORIGINAL_COMMAND in
  '@RECEIVE@') exec bash -c "$SSH_ORIGINAL_COMMAND" ;;
  '@LOGIN_CHECK@') exit 0 ;;
esac
echo "this key may only send datasets" >&2
exit 126
