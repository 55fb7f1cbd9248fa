# Builds a wheel of pyopencl without a network. Usage: build-pyopencl.sh DIRECTORY
# DIRECTORY contains pyopencl/ (source, with its imports) and build/ (pure Python wheels). The last line of output is the
# name of the wheel.
set -eu
cd "$HOME/$1"
# Two phones must build the same bytes.
export SOURCE_DATE_EPOCH=315532800 PYTHONHASHSEED=0 LC_ALL=C TZ=UTC
umask 077
python3 -m pip install --quiet --no-index --no-deps --target site build/*.whl

# It is linked with the loader of Termux, which finds no driver on an Adreno. The agent loads the library of the vendor
# first, and the linker then uses that, because it has the same name. Only OpenCL 1.2 calls are compiled in, because the
# linker refuses a module if the driver lacks a single symbol.
export CL_INC_DIR=$PREFIX/include CL_LIB_DIR=$PREFIX/lib CL_LIBNAME=OpenCL PYOPENCL_PRETEND_CL_VERSION=1.2
# Optimizing the wrapper gains nothing. A build type that CMake does not know adds no flags of its own and no LTO.
export CXXFLAGS="-O1 -g0 -ffile-prefix-map=$PWD=." SKBUILD_CMAKE_BUILD_TYPE=Plain
export SKBUILD_WHEEL_PACKAGES="pyopencl;pytools;platformdirs;typing_extensions;siphash24"
command -v clang++ >/dev/null && export CC=clang CXX=clang++
PYTHONPATH=$PWD/site python3 -m pip wheel --no-index --no-deps --no-build-isolation --no-cache-dir -w out ./pyopencl
cd out
echo *.whl
