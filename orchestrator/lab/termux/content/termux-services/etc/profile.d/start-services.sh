export SVDIR="$PREFIX/var/service" LOGDIR="$PREFIX/var/log"
service-daemon start
