/* Android has no passwd file: bionic makes up the user u0_aNNN for an app's uid, and Termux's headers add home and
 * shell. This shim does the same for uids that the host does not know, because Open MPI refuses to start anything
 * for an unknown user. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_APP_UID = 10000 };

typedef int lookup_r(uid_t, struct passwd *, char *, size_t, struct passwd **);

/* Fill `user` with strings stored in `text`. Returns 0, or ERANGE if they do not fit. */
static int make_user(uid_t uid, struct passwd *user, char *text, size_t size) {
    const char *home = getenv("HOME"), *prefix = getenv("PREFIX");
    int length = snprintf(text, size, "u0_a%u%c%s%c%s/bin/login", uid - FIRST_APP_UID, 0, home ? home : "/", 0,
                          prefix ? prefix : "");
    if (length < 0 || (size_t)length >= size) return ERANGE;
    char *directory = text + strlen(text) + 1;
    char *shell = directory + strlen(directory) + 1;
    *user = (struct passwd){.pw_name = text,
                            .pw_passwd = "x",
                            .pw_uid = uid,
                            .pw_gid = getgid(),
                            .pw_gecos = "",
                            .pw_dir = directory,
                            .pw_shell = shell};
    return 0;
}

int getpwuid_r(uid_t uid, struct passwd *user, char *text, size_t size, struct passwd **result) {
    lookup_r *real = (lookup_r *)dlsym(RTLD_NEXT, "getpwuid_r");
    int error = real(uid, user, text, size, result);
    if (error || *result || uid < FIRST_APP_UID || uid != getuid()) return error;
    error = make_user(uid, user, text, size);
    if (!error) *result = user;
    return error;
}

struct passwd *getpwuid(uid_t uid) {
    static struct passwd user;
    static char text[4096];
    struct passwd *result = NULL;
    errno = getpwuid_r(uid, &user, text, sizeof text, &result);
    return result;
}
