/* Linux system calls without libc. */
#pragma once
#include "core.h"

#if defined(__x86_64__)
static inline i64 syscall6(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
    register i64 r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return n;
}
enum { SYS_FUTEX = 202, SYS_NANOSLEEP = 35, SYS_CLOCK_GETTIME = 228 };
#elif defined(__aarch64__)
static inline i64 syscall6(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
    register i64 x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register i64 x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
enum { SYS_FUTEX = 98, SYS_NANOSLEEP = 101, SYS_CLOCK_GETTIME = 113 };
#else
#error "no system calls for this processor"
#endif

enum { CLOCK_MONOTONIC = 1, NS_PER_SECOND = 1000000000 };

/* Nanoseconds of the monotonic clock. */
static inline i64 monotonic_ns(void) {
    i64 time[2];
    syscall6(SYS_CLOCK_GETTIME, CLOCK_MONOTONIC, (i64)time, 0, 0, 0, 0);
    return time[0] * NS_PER_SECOND + time[1];
}

static inline void sleep_for(i64 nanoseconds) {
    i64 time[2] = {nanoseconds / NS_PER_SECOND, nanoseconds % NS_PER_SECOND};
    syscall6(SYS_NANOSLEEP, (i64)time, 0, 0, 0, 0, 0);
}
