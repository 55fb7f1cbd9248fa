"""The phone's GPU through OpenCL: the plan that the core runs, as kernels."""
