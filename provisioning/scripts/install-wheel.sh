# Installs a wheel. Usage: install-wheel.sh NAME SHA256; standard input: the wheel
set -eu
umask 077
directory=$HOME/.clusterctl/wheels
rm -rf "$directory"
mkdir -p "$directory"
trap 'rm -rf "$directory"' EXIT
cat >"$directory/$1"
echo "$2  $directory/$1" | sha256sum -c --quiet -
python3 -m pip install --quiet --no-index --no-deps --force-reinstall "$directory/$1"
