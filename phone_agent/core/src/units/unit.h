/* A unit is a source file that is compiled once per ISA; build.py defines ISA_HEADER. There are several, so that they
 * compile in parallel and an edit to one leaves the other objects in zig's cache. The kernels in a unit are static;
 * EXPORT makes them visible to kernel_table.c. */
#pragma once
#include ISA_HEADER
#include "epilogue.h"
#include "load_affine.h"

#define EXPORT(op) \
    void FOR_ISA(run_##op)(worker * w, const void *p) { run_##op(w, p); } \
    i64 FOR_ISA(workspace_##op)(i32 threads, const void *p) { return workspace_##op(threads, p); }
