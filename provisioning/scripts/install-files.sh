# Installs files. Usage: install-files.sh (MODE PATH)...; standard input: a tar archive with members 0, 1, 2, …
# Each PATH is '~/…' or '$PREFIX/…'. Files are written next to their destination and renamed, so each is replaced atomically.
set -eu
umask 077
stage=$(mktemp -d "$PREFIX/tmp/clusterctl.XXXXXX")
trap 'rm -rf "$stage"' EXIT
tar -xf - -C "$stage"
number=0
while [ $# -gt 0 ]; do
  mode=$1 path=$2
  shift 2
  case $path in
    '~/'*) path=$HOME/${path#\~/} ;;
    '$PREFIX/'*) path=$PREFIX/${path#\$PREFIX/} ;;
    *) echo "not an allowed destination: $path" >&2 && exit 2 ;;
  esac
  mkdir -p "${path%/*}"
  cp "$stage/$number" "$path.clusterctl-new"
  chmod "$mode" "$path.clusterctl-new"
  mv -f "$path.clusterctl-new" "$path"
  number=$((number + 1))
done
