/* A unit is what is compiled at once: some kernels, for one ISA (build.py defines ISA_HEADER). Several units, so that they compile side
 * by side and an edit to one leaves the others' objects in zig's cache. Kernels are static; EXPORT lets table.c see them. */
#pragma once
#include ISA_HEADER
#include "../rows.h"

#define JOINED_AGAIN(a, b) a##_of_##b
#define JOINED(a, b) JOINED_AGAIN(a, b)
#define EXPORT(op) \
    void JOINED(run_##op, TABLE)(worker * w, const void *p) { run_##op(w, p); } \
    i64 JOINED(workspace_##op, TABLE)(i32 threads, const void *p) { return workspace_##op(threads, p); }
