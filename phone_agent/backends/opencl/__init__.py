"""OpenCL backend: runs the same plans as the core, as GPU kernels."""
