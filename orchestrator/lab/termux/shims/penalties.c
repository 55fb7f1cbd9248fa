/* What OpenSSH 9.8 and newer do to those who knock and run away, for an sshd that is older: each connection that ends
 * without a login costs its address time, and an address that owes enough is turned away before the banner.
 *
 * The listening process counts. A connection's process tells it how it ended by its exit code, as the newer sshd's do.
 * Only while the scenario says penalties=on. Costs, limits and words are those of OpenSSH 9.8.
 */
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

enum { NO_LOGIN_S = 1, REFUSED_LOGIN_S = 5, ENFORCED_FROM_S = 15, MOST_S = 600 };
enum { EXIT_LOGGED_IN = 0, EXIT_REFUSED = 5, EXIT_NO_LOGIN = 255 };
enum { MOST_SOURCES = 256, MOST_CHILDREN = 256, MOST_EXEMPT = 32 };

static struct source { in_addr_t address; time_t expiry; int enforced; } sources[MOST_SOURCES];
static struct child { pid_t pid; in_addr_t address; } children[MOST_CHILDREN];
static struct network { in_addr_t address, mask; } exempt[MOST_EXEMPT];
static int exempt_count, switched_off;
static in_addr_t last_accepted;

static pid_t connection; /* this process, if it serves one connection: `sshd -R` */
static int asked_for_login, logged_in;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static time_t seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static int are_on(void) {
    char path[512], text[4] = "";
    if (switched_off || strcmp(program_invocation_short_name, "sshd") != 0) return 0;
    const char *android = getenv("ANDROID_ROOT");
    snprintf(path, sizeof path, "%s/scenario/penalties", android ? android : "/system");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    return length >= 2 && strncmp(text, "on", 2) == 0;
}

/* --- what sshd_config says */

static void exempt_one(const char *text) {
    char address[64];
    int bits = 32;
    struct in_addr parsed;
    if (sscanf(text, "%63[0-9.]/%d", address, &bits) < 1 || inet_pton(AF_INET, address, &parsed) != 1) return;
    in_addr_t mask = bits <= 0 ? 0 : htonl(~0u << (32 - bits));
    if (exempt_count < MOST_EXEMPT) exempt[exempt_count++] = (struct network){parsed.s_addr & mask, mask};
}

void penalties_configure(const char *line) {
    char copy[1024], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", line);
    word = strsep(&rest, " \t=");
    int is_list = strcasecmp(word, "PerSourcePenaltyExemptList") == 0;
    while (rest && (word = strsep(&rest, " \t=,\r\n")))
        if (is_list) exempt_one(word);
        else if (strcasecmp(word, "no") == 0) switched_off = 1;
}

static int is_exempt(in_addr_t address) {
    for (int i = 0; i < exempt_count; i++)
        if ((address & exempt[i].mask) == exempt[i].address) return 1;
    return 0;
}

/* --- the listener */

static void penalise(in_addr_t address, int seconds) {
    time_t now = seconds_now();
    struct source *free_one = NULL, *found = NULL;
    for (int i = 0; i < MOST_SOURCES && !found; i++) {
        if (sources[i].expiry > now && sources[i].address == address) found = &sources[i];
        else if (sources[i].expiry <= now && !free_one) free_one = &sources[i];
    }
    if (!found && !(found = free_one)) return;
    if (found == free_one) *found = (struct source){address, now, 0};
    found->expiry += seconds;
    if (found->expiry > now + MOST_S) found->expiry = now + MOST_S;
    if (found->expiry - now >= ENFORCED_FROM_S) found->enforced = 1;
}

static int is_turned_away(in_addr_t address) {
    for (int i = 0; i < MOST_SOURCES; i++)
        if (sources[i].enforced && sources[i].address == address && sources[i].expiry > seconds_now()) return 1;
    return 0;
}

static void turn_away(int channel, in_addr_t address) {
    static const char message[] = "Not allowed at this time\r\n";
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &address, text, sizeof text);
    dprintf(STDERR_FILENO, "drop connection from [%s] penalty: connections without attempting authentication\n", text);
    if (write(channel, message, sizeof message - 1) < 0) errno = 0; /* it may be gone already */
    close(channel);
}

int accept(int listener, struct sockaddr *restrict peer, socklen_t *restrict size) {
    int channel = ((int (*)(int, struct sockaddr *, socklen_t *))next("accept"))(listener, peer, size);
    last_accepted = INADDR_ANY;
    if (channel < 0 || !peer || peer->sa_family != AF_INET || !are_on()) return channel;
    in_addr_t address = ((struct sockaddr_in *)peer)->sin_addr.s_addr;
    if (is_exempt(address)) return channel;
    if (is_turned_away(address)) {
        turn_away(channel, address);
        errno = ECONNABORTED;
        return -1;
    }
    last_accepted = address;
    return channel;
}

pid_t fork(void) {
    pid_t pid = ((pid_t (*)(void))next("fork"))();
    if (pid <= 0 || last_accepted == INADDR_ANY) return pid;
    for (int i = 0; i < MOST_CHILDREN; i++)
        if (children[i].pid == 0) {
            children[i] = (struct child){pid, last_accepted};
            break;
        }
    last_accepted = INADDR_ANY;
    return pid;
}

pid_t waitpid(pid_t wanted, int *status, int options) {
    int ended = 0;
    pid_t pid = ((pid_t (*)(pid_t, int *, int))next("waitpid"))(wanted, &ended, options);
    if (status) *status = ended;
    for (int i = 0; pid > 0 && i < MOST_CHILDREN; i++)
        if (children[i].pid == pid) {
            children[i].pid = 0;
            if (!WIFEXITED(ended) || WEXITSTATUS(ended) == EXIT_NO_LOGIN) penalise(children[i].address, NO_LOGIN_S);
            else if (WEXITSTATUS(ended) == EXIT_REFUSED) penalise(children[i].address, REFUSED_LOGIN_S);
        }
    return pid;
}

/* --- a connection's process */

__attribute__((constructor)) static void serve_connection(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-R") == 0) connection = getpid();
}

void penalties_login_asked_for(void) { asked_for_login = 1; }

/* The time allowed for logging in is called off when somebody did. */
unsigned alarm(unsigned seconds) {
    if (seconds == 0 && getpid() == connection) logged_in = 1;
    return ((unsigned (*)(unsigned))next("alarm"))(seconds);
}

static int told_by_exit(int code) {
    if (!connection || getpid() != connection) return code;
    return logged_in ? EXIT_LOGGED_IN : asked_for_login ? EXIT_REFUSED : EXIT_NO_LOGIN;
}

void _exit(int code) {
    ((void (*)(int))next("_exit"))(told_by_exit(code));
    __builtin_unreachable();
}

void exit(int code) {
    ((void (*)(int))next("exit"))(told_by_exit(code));
    __builtin_unreachable();
}
#endif
