/* Functions that a compiler may call even without libc. Built with -fno-builtin, otherwise each would call itself. */
#include "common.h"

void *memcpy(void *to, const void *from, unsigned long bytes) {
    char *t = to;
    const char *f = from;
    for (; bytes >= 8; bytes -= 8, t += 8, f += 8) __builtin_memcpy_inline(t, f, 8);
    while (bytes--) *t++ = *f++;
    return to;
}

void *memset(void *to, int value, unsigned long bytes) {
    char *t = to;
    while (bytes--) *t++ = (char)value;
    return to;
}

void *memmove(void *to, const void *from, unsigned long bytes) {
    char *t = to;
    const char *f = from;
    if (t < f) return memcpy(to, from, bytes);
    while (bytes--) t[bytes] = f[bytes];
    return to;
}
