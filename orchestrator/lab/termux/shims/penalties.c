/* The per-source penalties of OpenSSH 9.8 (PerSourcePenalties), for an older sshd: every connection that ends
 * without a login costs its address a penalty in seconds, and an address with enough penalties is rejected before
 * the banner.
 *
 * The listening process keeps the count. The process of a connection reports how it ended by its exit code, as the
 * newer sshd does. Active only while the scenario has penalties=on. Penalties, limits and messages are those of
 * OpenSSH 9.8. */
#ifdef SSHD_WITHOUT_PENALTIES
#define _GNU_SOURCE
#include "penalties.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOAUTH_PENALTY_S = 1, AUTHFAIL_PENALTY_S = 5, MIN_ENFORCED_S = 15, MAX_PENALTY_S = 600 };
enum { EXIT_AUTHENTICATED = 0, EXIT_AUTHFAIL = 5, EXIT_NOAUTH = 255 };
enum { MAX_SOURCES = 256, MAX_CHILDREN = 256, MAX_EXEMPT = 32 };

static struct source {
    in_addr_t address;
    time_t expiry;
    int enforced;
} sources[MAX_SOURCES];
static struct child {
    pid_t pid;
    in_addr_t address;
} children[MAX_CHILDREN];
static struct network {
    in_addr_t address, mask;
} exempt[MAX_EXEMPT];
static int exempt_count, disabled;
static in_addr_t last_accepted;

static pid_t connection; /* this process, if it serves one connection (`sshd -R`) */
static int login_attempted, logged_in;

static void *next_symbol(const char *name) { return dlsym(RTLD_NEXT, name); }

static time_t seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static int is_enabled(void) {
    char path[512], text[4] = "";
    if (disabled || strcmp(program_invocation_short_name, "sshd") != 0) return 0;
    const char *android = getenv("ANDROID_ROOT");
    snprintf(path, sizeof path, "%s/scenario/penalties", android ? android : "/system");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    return length >= 2 && strncmp(text, "on", 2) == 0;
}

/* ---- sshd_config ---- */

static void add_exemption(const char *text) {
    char address[64];
    int bits = 32;
    struct in_addr parsed;
    if (sscanf(text, "%63[0-9.]/%d", address, &bits) < 1 || inet_pton(AF_INET, address, &parsed) != 1) return;
    in_addr_t mask = bits <= 0 ? 0 : htonl(~0u << (32 - bits));
    if (exempt_count < MAX_EXEMPT) exempt[exempt_count++] = (struct network){parsed.s_addr & mask, mask};
}

void penalties_configure(const char *line) {
    char copy[1024], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", line);
    word = strsep(&rest, " \t=");
    int is_list = strcasecmp(word, "PerSourcePenaltyExemptList") == 0;
    while (rest && (word = strsep(&rest, " \t=,\r\n")))
        if (is_list) add_exemption(word);
        else if (strcasecmp(word, "no") == 0) disabled = 1;
}

static int is_exempt(in_addr_t address) {
    for (int i = 0; i < exempt_count; i++)
        if ((address & exempt[i].mask) == exempt[i].address) return 1;
    return 0;
}

/* ---- the listening process ---- */

static void penalize(in_addr_t address, int seconds) {
    time_t now = seconds_now();
    struct source *unused = NULL, *entry = NULL;
    for (int i = 0; i < MAX_SOURCES && !entry; i++) {
        if (sources[i].expiry > now && sources[i].address == address) entry = &sources[i];
        else if (sources[i].expiry <= now && !unused) unused = &sources[i];
    }
    if (!entry && !(entry = unused)) return;
    if (entry == unused) *entry = (struct source){address, now, 0};
    entry->expiry += seconds;
    if (entry->expiry > now + MAX_PENALTY_S) entry->expiry = now + MAX_PENALTY_S;
    if (entry->expiry - now >= MIN_ENFORCED_S) entry->enforced = 1;
}

static int is_blocked(in_addr_t address) {
    for (int i = 0; i < MAX_SOURCES; i++)
        if (sources[i].enforced && sources[i].address == address && sources[i].expiry > seconds_now()) return 1;
    return 0;
}

static void reject(int channel, in_addr_t address) {
    static const char message[] = "Not allowed at this time\r\n";
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &address, text, sizeof text);
    dprintf(STDERR_FILENO, "drop connection from [%s] penalty: connections without attempting authentication\n", text);
    if (write(channel, message, sizeof message - 1) < 0) errno = 0; /* the peer may be gone already */
    close(channel);
}

int accept(int listener, struct sockaddr *restrict peer, socklen_t *restrict size) {
    int channel = ((int (*)(int, struct sockaddr *, socklen_t *))next_symbol("accept"))(listener, peer, size);
    last_accepted = INADDR_ANY;
    if (channel < 0 || !peer || peer->sa_family != AF_INET || !is_enabled()) return channel;
    in_addr_t address = ((struct sockaddr_in *)peer)->sin_addr.s_addr;
    if (is_exempt(address)) return channel;
    if (is_blocked(address)) {
        reject(channel, address);
        errno = ECONNABORTED;
        return -1;
    }
    last_accepted = address;
    return channel;
}

pid_t fork(void) {
    pid_t pid = ((pid_t (*)(void))next_symbol("fork"))();
    if (pid <= 0 || last_accepted == INADDR_ANY) return pid;
    for (int i = 0; i < MAX_CHILDREN; i++)
        if (children[i].pid == 0) {
            children[i] = (struct child){pid, last_accepted};
            break;
        }
    last_accepted = INADDR_ANY;
    return pid;
}

pid_t waitpid(pid_t wanted, int *status, int options) {
    int ended = 0;
    pid_t pid = ((pid_t (*)(pid_t, int *, int))next_symbol("waitpid"))(wanted, &ended, options);
    if (status) *status = ended;
    for (int i = 0; pid > 0 && i < MAX_CHILDREN; i++)
        if (children[i].pid == pid) {
            children[i].pid = 0;
            if (!WIFEXITED(ended) || WEXITSTATUS(ended) == EXIT_NOAUTH) penalize(children[i].address, NOAUTH_PENALTY_S);
            else if (WEXITSTATUS(ended) == EXIT_AUTHFAIL) penalize(children[i].address, AUTHFAIL_PENALTY_S);
        }
    return pid;
}

/* ---- the process of a connection ---- */

__attribute__((constructor)) static void detect_connection_process(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-R") == 0) connection = getpid();
}

void penalties_login_attempted(void) { login_attempted = 1; }

/* sshd cancels the login timeout when a login succeeds. */
unsigned alarm(unsigned seconds) {
    if (seconds == 0 && getpid() == connection) logged_in = 1;
    return ((unsigned (*)(unsigned))next_symbol("alarm"))(seconds);
}

static int exit_code(int code) {
    if (!connection || getpid() != connection) return code;
    return logged_in ? EXIT_AUTHENTICATED : login_attempted ? EXIT_AUTHFAIL : EXIT_NOAUTH;
}

void _exit(int code) {
    ((void (*)(int))next_symbol("_exit"))(exit_code(code));
    __builtin_unreachable();
}

void exit(int code) {
    ((void (*)(int))next_symbol("exit"))(exit_code(code));
    __builtin_unreachable();
}
#endif
