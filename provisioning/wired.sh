# Written by clusterctl: changes here are lost. Usage: wired ADDRESS COMMAND...
# Starts a command whose listeners are put on ADDRESS, the phone's on the wired network. Where the library that does
# so cannot be loaded, the command is started without it: `clusterctl selftest` tells.
library=$HOME/.clusterctl/agent/current/phone_agent/bind_shim/libbind_shim.so
preload=$library${LD_PRELOAD:+:$LD_PRELOAD}
wired=$1
shift
# On the loopback interface all phones of a lab share one address, and Open MPI tells the others that one.
if [[ $wired != 127.* ]] && [ -r "$library" ] && LD_PRELOAD=$preload "$BASH" -c : 2>/dev/null; then
  export LD_PRELOAD=$preload CLUSTERCTL_WIRED=$wired
fi
exec "$@"
