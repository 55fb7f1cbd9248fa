/* A wall clock that is off by the number of seconds given in the scenario. Time namespaces do not cover the time of
 * day, so this shim replaces libc's functions; monotonic clocks are unchanged. Waits until a time of day
 * (pthread_cond_timedwait, sem_timedwait) are not corrected.
 *
 * /etc/ld.so.preload loads it into every program of the phone while the clock is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OFFSET_FILE "/system/scenario/clock"

enum { NS_PER_SECOND = 1000000000 };
static const long long REFRESH_NS = NS_PER_SECOND / 5; /* so that a running program notices a new offset */

typedef int clock_function(clockid_t, struct timespec *);

static long long nanoseconds(struct timespec time) { return time.tv_sec * (long long)NS_PER_SECOND + time.tv_nsec; }

static clock_function *real_clock(void) {
    static clock_function *real;
    if (!real) real = (clock_function *)dlsym(RTLD_NEXT, "clock_gettime");
    return real;
}

static long long read_offset(void) {
    char text[64];
    int file = open(OFFSET_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    text[length > 0 ? length : 0] = '\0';
    return (long long)(strtod(text, NULL) * NS_PER_SECOND);
}

static long long offset(void) {
    static long long cached, checked_at = -1;
    struct timespec now;
    real_clock()(CLOCK_MONOTONIC_COARSE, &now);
    long long last = __atomic_load_n(&checked_at, __ATOMIC_RELAXED);
    if (last < 0 || nanoseconds(now) - last > REFRESH_NS) {
        int error = errno;
        __atomic_store_n(&cached, read_offset(), __ATOMIC_RELAXED);
        __atomic_store_n(&checked_at, nanoseconds(now), __ATOMIC_RELAXED);
        errno = error;
    }
    return __atomic_load_n(&cached, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = real_clock()(clock, time);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    long long shifted = nanoseconds(*time) + offset();
    *time = (struct timespec){shifted / NS_PER_SECOND, shifted % NS_PER_SECOND};
    return 0;
}

int timespec_get(struct timespec *time, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
