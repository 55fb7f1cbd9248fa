# Installs a wheel. Usage: install-wheel.sh NAME SHA256; standard input: the wheel
set -eu
umask 077
# pip records the path that a package was installed from: the sha256 in it identifies the wheel.
wheels=$HOME/.clusterctl/wheels directory=$HOME/.clusterctl/wheels/$2
rm -rf "$wheels"
mkdir -p "$directory"
trap 'rm -rf "$wheels"' EXIT
cat >"$directory/$1"
echo "$2  $directory/$1" | sha256sum -c --quiet -
# --no-compile: only a small part of pyopencl is ever imported.
python3 -m pip install --quiet --no-index --no-deps --no-compile --force-reinstall "$directory/$1"
