/* dpkg keeps what it replaces by a hard link. Android has none, and Termux's dpkg does without; this computer's gets a
 * copy where a link is refused. Loaded into dpkg only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_contents(int from, int to, const struct stat *about) {
    for (off_t left = about->st_size; left > 0;) {
        ssize_t copied = sendfile(to, from, NULL, (size_t)left);
        if (copied <= 0) return -1;
        left -= copied;
    }
    struct timespec times[2] = {about->st_atim, about->st_mtim};
    return futimens(to, times) || fchmod(to, about->st_mode & 07777) ? -1 : 0;
}

static int copy(const char *existing, const char *fresh) {
    struct stat about;
    int from = open(existing, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0) return -1;
    int to = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failed = to < 0 || fstat(from, &about) || copy_contents(from, to, &about);
    int error = errno;
    if (to >= 0) close(to);
    if (to >= 0 && failed) unlink(fresh);
    close(from);
    errno = error;
    return failed ? -1 : 0;
}

int link(const char *existing, const char *fresh) {
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "link");
    int failed = real(existing, fresh);
    return failed && errno == EACCES ? copy(existing, fresh) : failed;
}
