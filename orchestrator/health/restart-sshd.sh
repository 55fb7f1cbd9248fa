# Restarts sshd with the environment of the Termux app, under the boot script if there is one. Appended to processes.sh.
# This session continues. Exit code 3: sshd is missing or rejects its settings; nothing was stopped then.
set -u
prefix=${PREFIX:-/data/data/com.termux/files/usr}
export PREFIX=$prefix PATH=$prefix/bin TMPDIR=$prefix/tmp LANG=${LANG:-en_US.UTF-8}
export ANDROID_DATA=${ANDROID_DATA:-/data} ANDROID_ROOT=${ANDROID_ROOT:-/system}
for library in "$prefix/lib/libtermux-exec-ld-preload.so" "$prefix/lib/libtermux-exec.so"; do
  [ -e "$library" ] && export LD_PRELOAD=$library && break
done
# Other variables of the app, which `am` needs, are copied from another of its processes, if there is one.
for environ in /proc/[0-9]*/environ; do
  found=
  while IFS= read -r -d '' entry; do
    case $entry in BOOTCLASSPATH=* | DEX2OATBOOTCLASSPATH=* | EXTERNAL_STORAGE=* | ANDROID_*=* | TERMUX_*=*)
      export "${entry?}" && found=yes ;;
    esac
  done 2>/dev/null <"$environ"
  [ -n "$found" ] && break
done
mkdir -p "$TMPDIR" && chmod 700 "$TMPDIR"
sshd -t || exit 3

find_sshd
boot=$HOME/.termux/boot/00-clusterctl
setsid nohup bash -c '
  [ -z "$1" ] || kill -KILL "$1"
  [ -z "$2" ] || kill -TERM "$2"
  for _ in {1..50}; do
    kill -0 "$2" 2>/dev/null || break
    read -rt 0.1 <> <(:)
  done
  cd "$HOME"
  [ -f "$3" ] && exec bash "$3"
  exec sshd -D
' restart-sshd "$supervisor_pid" "$sshd" "$boot" </dev/null >/dev/null 2>&1 &
echo started
