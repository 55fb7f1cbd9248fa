# Builds mpi4py where it was put, without a network. Usage: build-wheel.sh DIRECTORY
# DIRECTORY holds mpi4py/ (source, with its C) and build/ (pure Python wheels). The wheel's name is the last line.
set -eu
cd "$HOME/$1"
python3 -m pip install --quiet --no-index --no-deps --target site build/*.whl

# The wrapper is large and its work is small: optimising it harder costs minutes and gains nothing.
export CFLAGS="-O1 -g0" MPI4PY_BUILD_MPICC=mpicc
command -v clang >/dev/null && export OMPI_CC=clang CC=clang
if mpicc -fno-tree-pta -Werror -x c -c /dev/null -o site/probe.o 2>/dev/null; then
  CFLAGS="$CFLAGS -fno-tree-pta"  # two thirds of gcc's time on this source; clang has no such pass
fi
touch mpi4py/src/mpi4py/MPI.c  # newer than its source: it is not translated again
PYTHONPATH=$PWD/site python3 -m pip wheel --no-index --no-deps --no-build-isolation --no-cache-dir -w out ./mpi4py
cd out
echo *.whl
