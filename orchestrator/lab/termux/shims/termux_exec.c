/* Does what termux-exec does for programs that expect /bin and /usr/bin: if a program, or the interpreter in a
 * script's first line, does not exist there, the one of the same name in $PREFIX/bin is started instead.
 *
 * May run between vfork and exec, so it allocates no memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TERMUX_PREFIX "/data/data/com.termux/files/usr"

typedef int exec_function(const char *path, char *const argv[], void *context);

static int is_missing_system_path(const char *path) {
    int system_path = strncmp(path, "/bin/", 5) == 0 || strncmp(path, "/usr/bin/", 9) == 0;
    return system_path && access(path, F_OK) != 0;
}

/* `path`, or its counterpart in Termux if it does not exist. */
static void resolve_path(const char *path, char found[PATH_MAX]) {
    const char *prefix = getenv("PREFIX");
    if (is_missing_system_path(path))
        snprintf(found, PATH_MAX, "%s/bin/%s", prefix ? prefix : TERMUX_PREFIX, strrchr(path, '/') + 1);
    else snprintf(found, PATH_MAX, "%s", path);
}

/* Split a script's `#!interpreter argument` in place. Returns 0 if it is not a script. */
static int read_shebang(const char *path, char line[PATH_MAX], char **interpreter, char **argument) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, line, PATH_MAX - 1);
    if (file >= 0) close(file);
    if (length < 3 || line[0] != '#' || line[1] != '!') return 0;
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    *interpreter = line + 2 + strspn(line + 2, " \t");
    *argument = *interpreter + strcspn(*interpreter, " \t");
    if (**argument) {
        *(*argument)++ = '\0';
        *argument += strspn(*argument, " \t");
    }
    return **interpreter != '\0';
}

static int exec_or_interpret(const char *path, char *const argv[], exec_function *start, void *context) {
    char program[PATH_MAX], line[PATH_MAX], shell[PATH_MAX], *interpreter, *argument;
    resolve_path(path, program);
    if (!read_shebang(program, line, &interpreter, &argument) || !is_missing_system_path(interpreter))
        return start(program, argv, context);
    resolve_path(interpreter, shell);
    int count = 0;
    while (argv[count]) count++;
    char *new_argv[count + 4];
    int next = 0;
    new_argv[next++] = interpreter;
    if (*argument) new_argv[next++] = argument;
    new_argv[next++] = program;
    for (int i = 1; i < count; i++) new_argv[next++] = argv[i];
    new_argv[next] = NULL;
    return start(shell, new_argv, context);
}

static int call_execve(const char *path, char *const argv[], void *environment) {
    int (*real)(const char *, char *const[], char *const[]) =
        (int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execve");
    return real(path, argv, environment);
}

int execve(const char *path, char *const argv[], char *const environment[]) {
    return exec_or_interpret(path, argv, call_execve, (void *)environment);
}

int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

/* Look `file` up in $PATH; unchanged if it contains a slash or is not found. */
static void search_path(const char *file, char found[PATH_MAX]) {
    const char *path = getenv("PATH");
    for (const char *part = path; part && !strchr(file, '/'); part = *part ? part + 1 : NULL) {
        size_t length = strcspn(part, ":");
        snprintf(found, PATH_MAX, "%.*s/%s", (int)length, part, file);
        if (access(found, X_OK) == 0) return;
        part += length;
    }
    snprintf(found, PATH_MAX, "%s", file);
}

int execvpe(const char *file, char *const argv[], char *const environment[]) {
    char found[PATH_MAX];
    search_path(file, found);
    return execve(found, argv, environment);
}

int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

struct spawn_request {
    pid_t *pid;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
    char *const *environment;
};

static int call_posix_spawn(const char *path, char *const argv[], void *context) {
    struct spawn_request *spawn_request = context;
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                char *const[]) = (void *)dlsym(RTLD_NEXT, "posix_spawn");
    return real(spawn_request->pid, path, spawn_request->actions, spawn_request->attributes, argv,
                spawn_request->environment);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    struct spawn_request spawn_request = {pid, actions, attributes, environment};
    return exec_or_interpret(path, argv, call_posix_spawn, &spawn_request);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    char found[PATH_MAX];
    search_path(file, found);
    return posix_spawn(pid, found, actions, attributes, argv, environment);
}
