# Managed by clusterctl: changes here are lost. Usage: wired ADDRESS COMMAND...
# Runs a command so that it listens only on ADDRESS, the wired address of the phone, by preloading a library. If that
# cannot be loaded, the command runs without it; `clusterctl selftest` reports that.
library=$HOME/.clusterctl/agent/current/phone_agent/bind_shim/libbind_shim.so
preload=$library${LD_PRELOAD:+:$LD_PRELOAD}
wired=$1
shift
# Virtual phones on the loopback interface share one address, so their listeners are not restricted.
if [[ $wired != 127.* ]] && [ -r "$library" ] && LD_PRELOAD=$preload "$BASH" -c : 2>/dev/null; then
  export LD_PRELOAD=$preload CLUSTERCTL_WIRED=$wired
fi
exec "$@"
