/* The thread pool: barrier, dynamic scheduling, and running a program. Compiled once, for the oldest processor of
 * the family. */
#include "syscalls.h"
#include "kernel_table.h"

struct thread_pool {
    const kernel_table *isa;
    char *workspace;
    const step *program;
    i64 *nanoseconds;
    i64 barrier_time; /* time of the last barrier, if nanoseconds is set: thread 0 may wake up late, when others are
                         already in the next step */
    i32 threads, count;
    /* Each on its own cache line, because they are written while other threads read the rest. */
    _Alignas(64) u32 generation; /* counts calls of core_pool_run; idle workers wait on it */
    u32 shutting_down;
    _Alignas(64) u32 arrived;
    _Alignas(64) u32 phase; /* counts barriers; threads inside a barrier wait on it */
    u32 sleepers;           /* threads that sleep in a futex, on either word */
    _Alignas(64) i64 tile_counter;
};
_Static_assert(sizeof(struct thread_pool) <= CORE_THREAD_POOL_BYTES, "CORE_POOL_BYTES is too small");

enum { SPIN_COUNT = 4000 }; /* a few microseconds: barriers are rarely further apart */

#if defined(__x86_64__)
static inline void cpu_relax(void) { __asm__ volatile("pause"); }
enum { FLUSH_DENORMALS = 0x8040 }; /* FTZ and DAZ: flush results, treat inputs as zero */
static inline u64 fp_control(void) {
    u32 mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    return mode;
}
static inline void set_fp_control(u64 wide) {
    u32 mode = (u32)wide;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}
static inline u32 add_fetch(u32 *word, u32 by) { return __atomic_add_fetch(word, by, __ATOMIC_SEQ_CST); }
static inline i64 fetch_add(i64 *word, i64 by) { return __atomic_fetch_add(word, by, __ATOMIC_RELAXED); }
#elif defined(__aarch64__)
static inline void cpu_relax(void) { __asm__ volatile("yield"); }
enum { FLUSH_DENORMALS = 1 << 24 }; /* FZ, but not FZ16: fp16 has so few exponents that it needs its denormals */
static inline u64 fp_control(void) {
    u64 mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void set_fp_control(u64 mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
/* By hand, because for ARMv8.0 clang calls libgcc's outline atomics, and there is no libgcc here. */
static inline u32 add_fetch(u32 *word, u32 by) {
    u32 value, failed;
    __asm__ volatile("1: ldaxr %w0, %2; add %w0, %w0, %w3; stlxr %w1, %w0, %2; cbnz %w1, 1b; dmb ish"
                     : "=&r"(value), "=&r"(failed), "+Q"(*word)
                     : "r"(by)
                     : "memory");
    return value;
}
static inline i64 fetch_add(i64 *word, i64 by) {
    i64 value, sum;
    u32 failed;
    __asm__ volatile("1: ldxr %0, %3; add %1, %0, %4; stxr %w2, %1, %3; cbnz %w2, 1b"
                     : "=&r"(value), "=&r"(sum), "=&r"(failed), "+Q"(*word)
                     : "r"(by)
                     : "memory");
    return value;
}
#endif

enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

static void wait_while(struct thread_pool *p, u32 *word, u32 value) {
    for (i32 spin = 0; spin < SPIN_COUNT; spin++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return;
        cpu_relax();
    }
    add_fetch(&p->sleepers, 1);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        syscall6(SYS_FUTEX, (i64)word, FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
    add_fetch(&p->sleepers, (u32)-1);
}

static void increment_and_wake(struct thread_pool *p, u32 *word) {
    add_fetch(word, 1);
    if (__atomic_load_n(&p->sleepers, __ATOMIC_SEQ_CST))
        syscall6(SYS_FUTEX, (i64)word, FUTEX_WAKE_PRIVATE, MAX_THREADS, 0, 0, 0);
}

i64 next_tile(worker *w) { return fetch_add(&w->thread_pool->tile_counter, 1); }

void barrier(worker *w) {
    struct thread_pool *p = w->thread_pool;
    if (p->threads == 1) {
        if (p->nanoseconds) p->barrier_time = monotonic_ns();
        p->tile_counter = 0;
        return;
    }
    u32 phase = __atomic_load_n(&p->phase, __ATOMIC_RELAXED);
    if (add_fetch(&p->arrived, 1) == (u32)p->threads) {
        if (p->nanoseconds) p->barrier_time = monotonic_ns();
        p->arrived = 0;
        p->tile_counter = 0;
        increment_and_wake(p, &p->phase);
    } else {
        wait_while(p, &p->phase, phase);
    }
}

/* Denormals (below 2^-126) are flushed to zero during a program: some x86 processors take over a hundred cycles for
 * one, and vanishing gradients are full of them. After the last barrier thread 0 may already start the next program,
 * so the other threads read this program's fields only before it. */
static void run_program(struct thread_pool *p, i32 index) {
    worker w = {p, index, p->threads, p->workspace};
    const step *program = p->program;
    u64 saved_fp_control = fp_control();
    set_fp_control(saved_fp_control | FLUSH_DENORMALS);
    i64 *nanoseconds = index == 0 ? p->nanoseconds : 0, started = nanoseconds ? monotonic_ns() : 0;
    for (i32 i = 0, count = p->count; i < count; i++) {
        p->isa->run[program[i].kind](&w, program[i].op);
        barrier(&w);
        if (!nanoseconds) continue;
        nanoseconds[i] = p->barrier_time - started;
        started = p->barrier_time;
    }
    set_fp_control(saved_fp_control);
}

void core_pool_init(thread_pool *p, i32 isa, i32 threads, void *workspace) {
    *p = (struct thread_pool){.isa = kernel_tables[isa], .workspace = workspace, .threads = threads};
}

void core_pool_work(thread_pool *p, i32 index) {
    for (u32 generation = 0;; generation++) {
        wait_while(p, &p->generation, generation);
        if (__atomic_load_n(&p->shutting_down, __ATOMIC_ACQUIRE)) return;
        run_program(p, index);
    }
}

void core_pool_shutdown(thread_pool *p) {
    __atomic_store_n(&p->shutting_down, 1, __ATOMIC_RELEASE);
    increment_and_wake(p, &p->generation);
}

void thread_pool_run(thread_pool *p, const step *program, i32 count, i64 *nanoseconds) {
    if (count <= 0) return; /* a program without a barrier could end before the workers have seen it */
    p->program = program;
    p->count = count;
    p->nanoseconds = nanoseconds;
    p->tile_counter = 0;
    if (p->threads > 1) increment_and_wake(p, &p->generation);
    run_program(p, 0);
}

void core_pool_run(thread_pool *p, const step *program, i32 count, i64 *nanoseconds) {
    thread_pool_run(p, program, count, nanoseconds);
}

#if defined(__aarch64__)
/* One entry of the auxiliary vector of this process (AT_HWCAP is 16), or 0. */
u64 aux_value(u64 wanted) {
    enum { SYS_OPENAT = 56, SYS_CLOSE = 57, SYS_READ = 63, AT_FDCWD = -100 };
    u64 entries[64];
    i64 file = syscall6(SYS_OPENAT, AT_FDCWD, (i64) "/proc/self/auxv", 0, 0, 0, 0);
    if (file < 0) return 0;
    i64 bytes = syscall6(SYS_READ, file, (i64)entries, sizeof entries, 0, 0, 0);
    syscall6(SYS_CLOSE, file, 0, 0, 0, 0, 0);
    for (i64 i = 0; i + 1 < bytes / (i64)sizeof *entries; i += 2)
        if (entries[i] == wanted) return entries[i + 1];
    return 0;
}
#endif
