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
# Python compiles what it imports, when it does: of pyopencl that is a small part.
python3 -m pip install --quiet --no-index --no-deps --no-compile --force-reinstall "$directory/$1"
