/* Runs test cases through the core in a separate process, usually on a processor that qemu emulates. No libc.
 *
 * Input:  i64 isa, threads, guard page before (1) or behind (0), number of cases. Per case: i64 kind, number of blocks.
 *         Per block: i64 bytes, number of pointers; per pointer: i64 offset, block that it points to; then the bytes.
 *         Block 0 is the op.
 * Output: i64 number of ISAs; per ISA: i64 supported. Per case: the bytes of all blocks after the run, as soon as it is
 *         done, so that the reader knows which case was the last one. */
#include "thread_pool.h"

enum { PAGE = 4096, MAX_BLOCKS = 64, STACK = 256 * 1024 };

#if defined(__aarch64__)
enum {
    SYS_READ = 63,
    SYS_WRITE = 64,
    SYS_EXIT = 93,
    SYS_EXIT_GROUP = 94,
    SYS_MUNMAP = 215,
    SYS_MMAP = 222,
    SYS_MPROTECT = 226
};
enum { SYS_CLONE = 220, SYS_FUTEX = 98 };

static i64 syscall6(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
    register i64 x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register i64 x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

/* Start a thread that runs body(argument) on `stack`. When it ends, *alive becomes 0 and its waiters are woken. */
static void start_thread(void (*body)(void *), void *argument, char *stack, i32 *alive) {
    register i64 x8 __asm__("x8") = SYS_CLONE, x0 __asm__("x0") = 0x250f00, x1 __asm__("x1") = (i64)stack;
    register i64 x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = (i64)alive;
    register void *x9 __asm__("x9") = body, *x10 __asm__("x10") = argument;
    __asm__ volatile("svc 0\n cbnz x0, 1f\n mov x0, x10\n blr x9\n mov x8, #93\n mov x0, #0\n svc 0\n 1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9), "r"(x10)
                     : "memory");
}

__asm__(".global _start\n_start: mov x29, #0\n bl work");
#else
#error "write the system calls of this processor first"
#endif

static void exit_with(i64 code) {
    for (;;) syscall6(SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0);
}

static void read_all(void *to, i64 bytes) {
    for (i64 got; bytes > 0; to = (char *)to + got, bytes -= got)
        if ((got = syscall6(SYS_READ, 0, (i64)to, bytes, 0, 0, 0)) <= 0) exit_with(101);
}

static i64 read_i64(void) {
    i64 value;
    read_all(&value, sizeof value);
    return value;
}

static void write_all(const void *from, i64 bytes) {
    for (i64 put; bytes > 0; from = (const char *)from + put, bytes -= put)
        if ((put = syscall6(SYS_WRITE, 1, (i64)from, bytes, 0, 0, 0)) <= 0) exit_with(102);
}

typedef struct {
    char *data;
    i64 bytes;
} block;

static i64 mapped_bytes(i64 bytes) { return MAX(ROUND_UP(bytes, PAGE), PAGE); }

/* Memory between two inaccessible pages, directly next to one of them. */
static char *guarded(i64 bytes, i64 before, i64 alignment) {
    char *base = (char *)syscall6(SYS_MMAP, 0, mapped_bytes(bytes) + 2 * PAGE, 0, 0x22, -1, 0);
    if ((u64)base > (u64)-4096) exit_with(103);
    if (syscall6(SYS_MPROTECT, (i64)(base + PAGE), mapped_bytes(bytes), 3, 0, 0, 0)) exit_with(104);
    return before || !bytes ? base + PAGE : base + PAGE + (mapped_bytes(bytes) - bytes) / alignment * alignment;
}

static void release(char *data, i64 bytes) {
    syscall6(SYS_MUNMAP, ((i64)data & -PAGE) - PAGE, mapped_bytes(bytes) + 2 * PAGE, 0, 0, 0, 0);
}

static i64 read_blocks(block *blocks, i64 count, i64 before) {
    static i64 offsets[MAX_BLOCKS][MAX_BLOCKS], targets[MAX_BLOCKS][MAX_BLOCKS], pointers[MAX_BLOCKS];
    if (count > MAX_BLOCKS) exit_with(105);
    for (i64 i = 0; i < count; i++) {
        i64 bytes = read_i64();
        blocks[i] = (block){guarded(bytes, before, 1), bytes};
        pointers[i] = read_i64();
        if (pointers[i] > MAX_BLOCKS) exit_with(106);
        for (i64 j = 0; j < pointers[i]; j++) offsets[i][j] = read_i64(), targets[i][j] = read_i64();
        read_all(blocks[i].data, bytes);
    }
    for (i64 i = 0; i < count; i++)
        for (i64 j = 0; j < pointers[i]; j++) memcpy(blocks[i].data + offsets[i][j], &blocks[targets[i][j]].data, 8);
    return count;
}

static _Alignas(64) char pool[CORE_THREAD_POOL_BYTES];
static _Alignas(16) char stacks[MAX_THREADS][STACK];
static i32 alive[MAX_THREADS];

typedef struct {
    i32 index;
} worker_arg;
static worker_arg worker_args[MAX_THREADS];

static void worker_main(void *argument) { core_pool_work((thread_pool *)pool, ((worker_arg *)argument)->index); }

static void run(i32 isa, i32 threads, i64 before, i32 kind, void *op) {
    i64 needed = core_workspace(isa, threads, kind, op);
    char *workspace = guarded(needed, before, 64);
    memset(workspace, 0xff, needed);
    memset(pool, 0, sizeof pool);
    core_pool_init((thread_pool *)pool, isa, threads, workspace);
    for (i32 i = 1; i < threads; i++) {
        worker_args[i].index = i;
        alive[i] = 1;
        start_thread(worker_main, &worker_args[i], stacks[i] + STACK, &alive[i]);
    }
    step program = {.kind = kind, .op = op};
    core_pool_run((thread_pool *)pool, &program, 1, 0);
    core_pool_shutdown((thread_pool *)pool);
    for (i32 i = 1; i < threads; i++)
        while (__atomic_load_n(&alive[i], __ATOMIC_ACQUIRE)) syscall6(SYS_FUTEX, (i64)&alive[i], 0, 1, 0, 0, 0);
    release(workspace, needed);
}

__attribute__((used)) void work(void) {
    static block blocks[MAX_BLOCKS];
    i64 isa = read_i64(), threads = read_i64(), before = read_i64(), cases = read_i64();
    i64 isas = core_isa_count();
    write_all(&isas, sizeof isas);
    for (i64 i = 0; i < isas; i++) {
        i64 runs = core_isa_supported((i32)i);
        write_all(&runs, sizeof runs);
    }
    while (cases--) {
        i64 kind = read_i64(), count = read_blocks(blocks, read_i64(), before);
        run((i32)isa, (i32)threads, before, (i32)kind, blocks[0].data);
        for (i64 i = 0; i < count; i++) {
            write_all(blocks[i].data, blocks[i].bytes);
            release(blocks[i].data, blocks[i].bytes);
        }
    }
    exit_with(0);
}
