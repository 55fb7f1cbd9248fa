/* The ISAs in this library, and which of them the processor supports. */
#include "kernel_table.h"

typedef struct {
    const char *name;
    i32 (*is_supported)(void);
} isa;

#if defined(__x86_64__)
extern const kernel_table kernels_avx512, kernels_avx2, kernels_sse2;
const kernel_table *const kernel_tables[] = {&kernels_avx512, &kernels_avx2, &kernels_sse2};

typedef struct {
    u32 a, b, c, d;
} registers;

static registers cpuid(u32 leaf) {
    registers r;
    __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(0));
    return r;
}

/* Whether the operating system saves these register files on a context switch. */
static i32 os_saves_registers(u32 wanted) {
    if (!(cpuid(1).c >> 27 & 1)) return 0;
    u32 low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}

static i32 has_avx2(void) {
    registers one = cpuid(1);
    return cpuid(0).a >= 7 && (one.c >> 12 & 1) && (one.c >> 29 & 1) && (cpuid(7).b >> 5 & 1) &&
           os_saves_registers(0x6);
}

static i32 has_avx512(void) {
    u32 wanted = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F, DQ, CD, BW, VL */
    return has_avx2() && (cpuid(7).b & wanted) == wanted && os_saves_registers(0xe6);
}

static i32 always_supported(void) { return 1; }

static const isa isas[] = {{"avx512", has_avx512}, {"avx2", has_avx2}, {"sse2", always_supported}};
#elif defined(__aarch64__)
extern const kernel_table kernels_neon_fp16, kernels_neon;
const kernel_table *const kernel_tables[] = {&kernels_neon_fp16, &kernels_neon};

u64 aux_value(u64 wanted);

static i32 has_fp16(void) {
    u64 features = aux_value(16);
    return features >> 10 & features >> 20 & 1; /* half-precision arithmetic, dot product */
}

static i32 always_supported(void) { return 1; }

static const isa isas[] = {{"neon-fp16", has_fp16}, {"neon", always_supported}};
#endif

i32 core_abi(void) { return CORE_ABI; }
i32 core_isa_count(void) { return sizeof isas / sizeof *isas; }
const char *core_isa_name(i32 i) { return isas[i].name; }
i32 core_isa_supported(i32 i) { return isas[i].is_supported(); }
i32 core_lanes(i32 i) { return kernel_tables[i]->lanes; }

i64 core_workspace(i32 i, i32 threads, i32 kind, const void *op) {
    return kernel_tables[i]->workspace[kind] ? kernel_tables[i]->workspace[kind](threads, op) : 0;
}

i32 core_sizeof(i32 kind) {
    static const i32 sizes[KIND_COUNT] = {
        [CONV_FORWARD] = sizeof(conv_forward),
        [CONV_BACKWARD_DATA] = sizeof(conv_backward_data),
        [CONV_BACKWARD_WEIGHTS] = sizeof(conv_backward_weights),
        [DEPTHWISE_FORWARD] = sizeof(conv_forward),
        [DEPTHWISE_BACKWARD_DATA] = sizeof(conv_backward_data),
        [DEPTHWISE_BACKWARD_WEIGHTS] = sizeof(conv_backward_weights),
        [POOLING_FORWARD] = sizeof(pooling_forward),
        [POOLING_BACKWARD] = sizeof(pooling_backward),
        [BATCH_NORM_FORWARD] = sizeof(batch_norm_forward),
        [BATCH_NORM_FOLD] = sizeof(batch_norm_fold),
        [BATCH_NORM_BACKWARD] = sizeof(batch_norm_backward),
        [ADD_FORWARD] = sizeof(add_forward),
        [ADD_BACKWARD] = sizeof(add_backward),
        [LRN_FORWARD] = sizeof(lrn_forward),
        [LRN_BACKWARD] = sizeof(lrn_backward),
        [DROPOUT_FORWARD] = sizeof(dropout_forward),
        [DROPOUT_BACKWARD] = sizeof(dropout_backward),
        [SOFTMAX_LOSS] = sizeof(softmax_loss),
        [OPTIMIZER_UPDATE] = sizeof(optimizer_update),
        [ENCODE] = sizeof(encode),
        [DECODE] = sizeof(decode),
        [LOWRANK_SKETCH] = sizeof(low_rank),
        [LOWRANK_ORTHONORMALIZE] = sizeof(low_rank),
        [LOWRANK_PROJECT] = sizeof(low_rank),
        [LOWRANK_RECONSTRUCT] = sizeof(low_rank),
        [AUGMENT] = sizeof(augment),
        [FMA_PEAK] = sizeof(fma_peak),
        [DGEMM] = sizeof(dgemm),
        [ELIMINATE] = sizeof(eliminate),
    };
    return kind >= 0 && kind < KIND_COUNT ? sizes[kind] : -1;
}
