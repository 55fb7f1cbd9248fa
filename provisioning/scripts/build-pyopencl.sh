# Builds pyopencl where it was put, without a network. Usage: build-pyopencl.sh DIRECTORY
# DIRECTORY holds pyopencl/ (source, with what it imports) and build/ (pure Python wheels). The wheel's name is the last line.
set -eu
cd "$HOME/$1"
python3 -m pip install --quiet --no-index --no-deps --target site build/*.whl

# It is linked with Termux's loader, which finds no driver on an Adreno. A worker loads the vendor's library first: of the
# same name, it is the one that counts. Only calls of OpenCL 1.2 are used: Android's linker refuses a module whose driver
# lacks a single one.
export CL_INC_DIR=$PREFIX/include CL_LIB_DIR=$PREFIX/lib CL_LIBNAME=OpenCL PYOPENCL_PRETEND_CL_VERSION=1.2
# The wrapper is large and its work is small. A build type that CMake does not know has no flags but these, and no LTO.
export CXXFLAGS="-O1 -g0" SKBUILD_CMAKE_BUILD_TYPE=Plain
export SKBUILD_WHEEL_PACKAGES="pyopencl;pytools;platformdirs;typing_extensions;siphash24"
command -v clang++ >/dev/null && export CC=clang CXX=clang++
PYTHONPATH=$PWD/site python3 -m pip wheel --no-index --no-deps --no-build-isolation --no-cache-dir -w out ./pyopencl
cd out
echo *.whl
