/* dpkg makes hard links to the files that it replaces. Android allows none, and Termux's dpkg does without. The
 * host's dpkg gets a copy if a link is refused. Loaded into dpkg only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_contents(int from, int to, const struct stat *info) {
    for (off_t left = info->st_size; left > 0;) {
        ssize_t copied = sendfile(to, from, NULL, (size_t)left);
        if (copied <= 0) return -1;
        left -= copied;
    }
    struct timespec times[2] = {info->st_atim, info->st_mtim};
    return futimens(to, times) || fchmod(to, info->st_mode & 07777) ? -1 : 0;
}

static int copy(const char *source, const char *target) {
    struct stat info;
    int from = open(source, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0) return -1;
    int to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failed = to < 0 || fstat(from, &info) || copy_contents(from, to, &info);
    int error = errno;
    if (to >= 0) close(to);
    if (to >= 0 && failed) unlink(target);
    close(from);
    errno = error;
    return failed ? -1 : 0;
}

int link(const char *source, const char *target) {
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "link");
    int failed = real(source, target);
    return failed && errno == EACCES ? copy(source, target) : failed;
}
