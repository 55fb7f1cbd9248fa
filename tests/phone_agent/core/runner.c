/* Runs cases through the core in a process of its own, on whatever processor that process has (qemu's, mostly). No libc.
 *
 * In:  i64 isa, threads, guard before (else behind), cases; then each case: i64 kind, blocks; then each block: i64 bytes,
 *      pointers, and for each pointer: i64 offset, block it points to; then its bytes. Block 0 is the op.
 * Out: i64 ISAs there are; for each: i64 does it run here; then for each case all blocks' bytes as they are afterwards,
 *      as soon as it is done: whoever reads knows which case was the last one. */
#include "thread_pool.h"

enum { PAGE = 4096, MOST_BLOCKS = 64, STACK = 256 * 1024 };

#if defined(__aarch64__)
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 93, SYS_EXIT_GROUP = 94, SYS_MUNMAP = 215, SYS_MMAP = 222, SYS_MPROTECT = 226 };
enum { SYS_CLONE = 220, SYS_FUTEX = 98 };

static i64 call(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
    register i64 x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register i64 x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

/* A thread that runs body(argument) on `stack`; *alive becomes 0, and its waiters wake, when it ends. */
static void start(void (*body)(void *), void *argument, char *stack, i32 *alive) {
    register i64 x8 __asm__("x8") = SYS_CLONE, x0 __asm__("x0") = 0x250f00, x1 __asm__("x1") = (i64)stack;
    register i64 x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = (i64)alive;
    register void *x9 __asm__("x9") = body, *x10 __asm__("x10") = argument;
    __asm__ volatile("svc 0\n cbnz x0, 1f\n mov x0, x10\n blr x9\n mov x8, #93\n mov x0, #0\n svc 0\n 1:"
                     : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9), "r"(x10) : "memory");
}

__asm__(".global _start\n_start: mov x29, #0\n bl work");
#else
#error "write the system calls of this processor first"
#endif

static void fail(i64 code) {
    for (;;) call(SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0);
}

static void read_all(void *to, i64 bytes) {
    for (i64 got; bytes > 0; to = (char *)to + got, bytes -= got)
        if ((got = call(SYS_READ, 0, (i64)to, bytes, 0, 0, 0)) <= 0) fail(101);
}

static i64 read_one(void) {
    i64 value;
    read_all(&value, sizeof value);
    return value;
}

static void write_all(const void *from, i64 bytes) {
    for (i64 put; bytes > 0; from = (const char *)from + put, bytes -= put)
        if ((put = call(SYS_WRITE, 1, (i64)from, bytes, 0, 0, 0)) <= 0) fail(102);
}

typedef struct {
    char *data;
    i64 bytes;
} block;

static i64 room(i64 bytes) { return MAX(ROUND_UP(bytes, PAGE), PAGE); }

/* Between two pages that nobody may touch, right against one of them. */
static char *guarded(i64 bytes, i64 before, i64 alignment) {
    char *base = (char *)call(SYS_MMAP, 0, room(bytes) + 2 * PAGE, 0, 0x22, -1, 0);
    if ((u64)base > (u64)-4096) fail(103);
    if (call(SYS_MPROTECT, (i64)(base + PAGE), room(bytes), 3, 0, 0, 0)) fail(104);
    return before || !bytes ? base + PAGE : base + PAGE + (room(bytes) - bytes) / alignment * alignment;
}

static void release(char *data, i64 bytes) {
    call(SYS_MUNMAP, ((i64)data & -PAGE) - PAGE, room(bytes) + 2 * PAGE, 0, 0, 0, 0);
}

static i64 read_blocks(block *blocks, i64 count, i64 before) {
    static i64 offsets[MOST_BLOCKS][MOST_BLOCKS], targets[MOST_BLOCKS][MOST_BLOCKS], pointers[MOST_BLOCKS];
    if (count > MOST_BLOCKS) fail(105);
    for (i64 i = 0; i < count; i++) {
        i64 bytes = read_one();
        blocks[i] = (block){guarded(bytes, before, 1), bytes};
        pointers[i] = read_one();
        if (pointers[i] > MOST_BLOCKS) fail(106);
        for (i64 j = 0; j < pointers[i]; j++) offsets[i][j] = read_one(), targets[i][j] = read_one();
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
} beginning;
static beginning beginnings[MAX_THREADS];

static void be_worker(void *argument) { core_pool_work((thread_pool *)pool, ((beginning *)argument)->index); }

static void run(i32 isa, i32 threads, i64 before, i32 kind, void *op) {
    i64 needed = core_workspace(isa, threads, kind, op);
    char *workspace = guarded(needed, before, 64);
    memset(workspace, 0xff, needed);
    memset(pool, 0, sizeof pool);
    core_pool_init((thread_pool *)pool, isa, threads, workspace);
    for (i32 i = 1; i < threads; i++) {
        beginnings[i].index = i;
        alive[i] = 1;
        start(be_worker, &beginnings[i], stacks[i] + STACK, &alive[i]);
    }
    step only = {.kind = kind, .op = op};
    core_pool_run((thread_pool *)pool, &only, 1, 0);
    core_pool_shutdown((thread_pool *)pool);
    for (i32 i = 1; i < threads; i++)
        while (__atomic_load_n(&alive[i], __ATOMIC_ACQUIRE)) call(SYS_FUTEX, (i64)&alive[i], 0, 1, 0, 0, 0);
    release(workspace, needed);
}

__attribute__((used)) void work(void) {
    static block blocks[MOST_BLOCKS];
    i64 isa = read_one(), threads = read_one(), before = read_one(), cases = read_one();
    i64 isas = core_isa_count();
    write_all(&isas, sizeof isas);
    for (i64 i = 0; i < isas; i++) {
        i64 runs = core_isa_supported((i32)i);
        write_all(&runs, sizeof runs);
    }
    while (cases--) {
        i64 kind = read_one(), count = read_blocks(blocks, read_one(), before);
        run((i32)isa, (i32)threads, before, (i32)kind, blocks[0].data);
        for (i64 i = 0; i < count; i++) {
            write_all(blocks[i].data, blocks[i].bytes);
            release(blocks[i].data, blocks[i].bytes);
        }
    }
    fail(0);
}
