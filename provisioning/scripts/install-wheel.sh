# Installs a wheel. Usage: install-wheel.sh NAME SHA256; standard input: the wheel
set -eu
umask 077
# pip remembers where a package came from: the sum in the path tells which wheel is installed.
wheels=$HOME/.clusterctl/wheels directory=$HOME/.clusterctl/wheels/$2
rm -rf "$wheels"
mkdir -p "$directory"
trap 'rm -rf "$wheels"' EXIT
cat >"$directory/$1"
echo "$2  $directory/$1" | sha256sum -c --quiet -
python3 -m pip install --quiet --no-index --no-deps --force-reinstall "$directory/$1"
