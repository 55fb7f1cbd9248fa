# Runs a command in the environment of Termux. Usage: termux.sh COMMAND ARGUMENT...; run by /system/bin/sh under run-as.
export PREFIX=/data/data/com.termux/files/usr HOME=/data/data/com.termux/files/home LANG=en_US.UTF-8
export TMPDIR=$PREFIX/tmp PATH=$PREFIX/bin
# No program would start if LD_PRELOAD named a missing library.
for library in libtermux-exec-ld-preload.so libtermux-exec.so; do
  [ -e "$PREFIX/lib/$library" ] && export LD_PRELOAD=$PREFIX/lib/$library && break
done
[ -d "$HOME" ] || "$PREFIX/bin/mkdir" -p "$HOME"
cd "$HOME" && exec "$@"
