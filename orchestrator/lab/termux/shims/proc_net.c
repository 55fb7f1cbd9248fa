/* /proc/net as an app sees it from Android 10 on: permission denied. It is a directory of every process, so it cannot
 * be covered by a mount; libc's ways to open a file refuse it instead.
 *
 * Loaded into every program of the phone by /etc/ld.so.preload while the scenario says proc=strict.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int is_denied(const char *path) {
    if (strncmp(path, "/proc/", 6) != 0) return 0;
    const char *rest = path + 6;
    if (strncmp(rest, "net", 3) != 0) { /* or that of a process: /proc/self/net, /proc/123/net */
        const char *slash = strchr(rest, '/');
        if (!slash) return 0;
        rest = slash + 1;
    }
    return strncmp(rest, "net", 3) == 0 && (rest[3] == '\0' || rest[3] == '/');
}

static int refuse(void) {
    errno = EACCES;
    return -1;
}

typedef int opener(const char *, int, ...);
typedef int opener_at(int, const char *, int, ...);
typedef FILE *stream_opener(const char *, const char *);
typedef DIR *directory_opener(const char *);

#define MODE_OF(flags)                                   \
    unsigned mode = 0;                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {             \
        va_list rest;                                    \
        va_start(rest, flags);                           \
        mode = va_arg(rest, unsigned);                   \
        va_end(rest);                                    \
    }

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        MODE_OF(flags)                                                         \
        return is_denied(path) ? refuse() : ((opener *)dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name)                                                          \
    int name(int directory, const char *path, int flags, ...) {                \
        MODE_OF(flags)                                                         \
        return is_denied(path) ? refuse() : ((opener_at *)dlsym(RTLD_NEXT, #name))(directory, path, flags, mode); \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

#define FOPEN(name)                                                            \
    FILE *name(const char *restrict path, const char *restrict how) {          \
        return is_denied(path) ? (refuse(), NULL) : ((stream_opener *)dlsym(RTLD_NEXT, #name))(path, how); \
    }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path) {
    return is_denied(path) ? (refuse(), NULL) : ((directory_opener *)dlsym(RTLD_NEXT, "opendir"))(path);
}
