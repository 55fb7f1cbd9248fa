/* Gives the host's OpenSSH the behavior that Termux patches into its own.
 *
 * - There is one user. Every login name maps to the uid that runs sshd, with home $HOME and shell $PREFIX/bin/login.
 *   No passwd file is read.
 * - A session gets sshd's own PATH, PREFIX, TMPDIR, LD_PRELOAD, LANG, ANDROID_* and TERMUX_*: the environment in which
 *   sshd was started is the one that every job gets.
 * - Penalty options that an sshd older than 9.8 does not know are replaced by empty lines and handled by penalties.c.
 *
 * LD_PRELOAD loads it into the ssh programs only: it removes itself from the environment of the programs that they
 * start. */
#define _GNU_SOURCE
#ifdef SSHD_WITHOUT_PENALTIES
#include "penalties.h"
#endif

#include <dlfcn.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TERMUX_PREFIX "/data/data/com.termux/files/usr"

enum { MAX_SAVED = 64, MAX_ENVIRONMENT = 512 };

static const char *const saved_names[] = {"ASEC_MOUNTPOINT",
                                          "BOOTCLASSPATH",
                                          "DEX2OATBOOTCLASSPATH",
                                          "EXTERNAL_STORAGE",
                                          "LANG",
                                          "PATH",
                                          "PREFIX",
                                          "SYSTEMSERVERCLASSPATH",
                                          "TMPDIR",
                                          "LD_PRELOAD"};
static const char *const saved_prefixes[] = {"ANDROID_", "TERMUX_"};

static char *saved[MAX_SAVED]; /* sshd's own variables for its sessions, as NAME=value */
static int saved_count;
static char own_preload[4096]; /* LD_PRELOAD=... that loads this library again */
static char home[1024], shell[1024], name[64];
static struct passwd phone_user;

static int starts_with(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static int same_name(const char *variable, const char *other) {
    size_t length = strcspn(variable, "=");
    return strncmp(variable, other, length) == 0 && (other[length] == '=' || other[length] == '\0');
}

static int is_saved(const char *variable) {
    for (size_t i = 0; i < sizeof saved_names / sizeof *saved_names; i++)
        if (same_name(variable, saved_names[i])) return 1;
    for (size_t i = 0; i < sizeof saved_prefixes / sizeof *saved_prefixes; i++)
        if (starts_with(variable, saved_prefixes[i])) return 1;
    return 0;
}

/* Remove this library from LD_PRELOAD, so that only ssh programs load it. */
static void hide_own_preload(void) {
    Dl_info self;
    const char *preload = getenv("LD_PRELOAD");
    if (!preload || !dladdr((void *)hide_own_preload, &self)) return;
    snprintf(own_preload, sizeof own_preload, "LD_PRELOAD=%s", preload);
    size_t length = strlen(self.dli_fname);
    if (strncmp(preload, self.dli_fname, length) != 0) return;
    const char *rest = preload + length;
    if (*rest == ':') setenv("LD_PRELOAD", strdup(rest + 1), 1);
    else unsetenv("LD_PRELOAD");
}

static void save_environment(void) {
    for (char **variable = environ; *variable && saved_count < MAX_SAVED; variable++)
        if (is_saved(*variable)) saved[saved_count++] = strdup(*variable);
}

static void describe_user(void) {
    const char *prefix = getenv("PREFIX"), *own_home = getenv("HOME");
    uid_t uid = getuid();
    snprintf(home, sizeof home, "%s", own_home ? own_home : "/");
    snprintf(shell, sizeof shell, "%s/bin/login", prefix ? prefix : TERMUX_PREFIX);
    if (uid >= 10000) snprintf(name, sizeof name, "u0_a%u", uid - 10000);
    else snprintf(name, sizeof name, "user%u", uid);
    phone_user = (struct passwd){.pw_name = name,
                                 .pw_passwd = "x",
                                 .pw_uid = uid,
                                 .pw_gid = getgid(),
                                 .pw_gecos = "",
                                 .pw_dir = home,
                                 .pw_shell = shell};
}

__attribute__((constructor)) static void initialize(void) {
    describe_user();
    hide_own_preload();
    save_environment();
}

struct passwd *getpwuid(uid_t uid) { return uid == getuid() ? &phone_user : NULL; }

struct passwd *getpwnam(const char *login) {
    (void)login;
#ifdef SSHD_WITHOUT_PENALTIES
    penalties_login_attempted();
#endif
    return &phone_user;
}

/* Android has no group `tty`. With the host's group, sshd would try to give terminals to it, which takes root. */
struct group *getgrnam(const char *group) {
    (void)group;
    return NULL;
}

static int is_sshd(const char *path) {
    const char *slash = strrchr(path, '/');
    return starts_with(slash ? slash + 1 : path, "sshd");
}

/* The variables of `given` that sshd's own do not replace, then sshd's own. */
static void session_environment(char *const given[], char *merged[]) {
    int count = 0;
    for (; *given && count < MAX_ENVIRONMENT - MAX_SAVED; given++)
        if (!is_saved(*given) && !same_name("MAIL", *given)) merged[count++] = *given;
    for (int i = 0; i < saved_count; i++) merged[count++] = saved[i];
    merged[count] = NULL;
}

static void add_own_preload(char *const given[], char *merged[]) {
    int count = 0;
    for (; *given && count < MAX_ENVIRONMENT - 1; given++)
        if (!same_name("LD_PRELOAD", *given)) merged[count++] = *given;
    if (*own_preload) merged[count++] = own_preload;
    merged[count] = NULL;
}

int execve(const char *path, char *const argv[], char *const environment[]) {
    int (*real)(const char *, char *const[], char *const[]) =
        (int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execve");
    char *merged[MAX_ENVIRONMENT + 1];
    if (is_sshd(path)) add_own_preload(environment, merged);
    else if (strcmp(path, shell) == 0) session_environment(environment, merged);
    else return real(path, argv, environment);
    return real(path, argv, merged);
}

int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

#ifdef SSHD_WITHOUT_PENALTIES
ssize_t __getdelim(char **line, size_t *size, int delimiter, FILE *file) {
    ssize_t (*real)(char **, size_t *, int, FILE *) =
        (ssize_t (*)(char **, size_t *, int, FILE *))dlsym(RTLD_NEXT, "__getdelim");
    ssize_t length = real(line, size, delimiter, file);
    if (length <= 0) return length;
    const char *word = *line + strspn(*line, " \t");
    if (strncasecmp(word, "PerSourcePenalt", strlen("PerSourcePenalt")) != 0) return length;
    penalties_configure(word);
    strcpy(*line, "\n");
    return 1;
}
#endif
