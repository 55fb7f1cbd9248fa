/* /proc/net as an app sees it since Android 10: permission denied. It exists in the directory of every process, so
 * no mount can cover it; instead this shim makes libc's functions that open files refuse it.
 *
 * /etc/ld.so.preload loads it into every program of the phone while the scenario has proc=strict. */
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
    if (strncmp(rest, "net", 3) != 0) { /* or the one of a process: /proc/self/net, /proc/123/net */
        const char *slash = strchr(rest, '/');
        if (!slash) return 0;
        rest = slash + 1;
    }
    return strncmp(rest, "net", 3) == 0 && (rest[3] == '\0' || rest[3] == '/');
}

static int deny(void) {
    errno = EACCES;
    return -1;
}

typedef int open_function(const char *, int, ...);
typedef int openat_function(int, const char *, int, ...);
typedef FILE *fopen_function(const char *, const char *);
typedef DIR *opendir_function(const char *);

#define MODE_OF(flags) \
    unsigned mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, unsigned); \
        va_end(rest); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE_OF(flags) \
        return is_denied(path) ? deny() : ((open_function *)dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        MODE_OF(flags) \
        return is_denied(path) ? deny() : ((openat_function *)dlsym(RTLD_NEXT, #name))(directory, path, flags, mode); \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

#define FOPEN(name) \
    FILE *name(const char *restrict path, const char *restrict mode) { \
        return is_denied(path) ? (deny(), NULL) : ((fopen_function *)dlsym(RTLD_NEXT, #name))(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path) {
    return is_denied(path) ? (deny(), NULL) : ((opendir_function *)dlsym(RTLD_NEXT, "opendir"))(path);
}
