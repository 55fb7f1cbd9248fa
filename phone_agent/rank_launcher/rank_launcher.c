/* Fork agent of Open MPI's daemon (orte_fork_agent): orted starts this program instead of what mpirun asks for.
 *
 *     rank_launcher VERB... -- IGNORED...
 *
 * mpirun runs on another phone, which may be hostile. This program ignores its command and starts the agent with VERB,
 * which this phone's own daemon was given. The environment is the daemon's own; from mpirun come only the variables by
 * which a rank finds its daemon. It is a static program, so that LD_PRELOAD has no effect before the environment is
 * replaced; and it uses no library, like the core. */

typedef unsigned long usize;

enum { MAX_VARIABLES = 1024, MAX_WORDS = 64, MAX_ENVIRONMENT = 1 << 20, MAX_PATH = 4096, NOT_STARTED = 127 };

#if defined(__aarch64__)
enum { SYS_openat = 56, SYS_read = 63, SYS_write = 64, SYS_exit_group = 94, SYS_getppid = 173, SYS_execve = 221 };
__asm__(".global _start\n_start: mov x0, sp\n bl start");
static long call(long number, long a, long b, long c) {
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = 0;
    register long x8 __asm__("x8") = number;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x8) : "memory");
    return x0;
}
#elif defined(__x86_64__)
enum { SYS_read = 0, SYS_write = 1, SYS_execve = 59, SYS_getppid = 110, SYS_exit_group = 231, SYS_openat = 257 };
__asm__(".global _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start");
static long call(long number, long a, long b, long c) {
    long result;
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
#endif

/* Complete names end with '='; the others are prefixes. Names that can make Open MPI or PMIx load a library from
 * another place (mca_base_component_path, PMIX_INSTALL_PREFIX and others) or write to another directory
 * (orte_tmpdir_base, orte_jobfam_session_dir and others) must not match. */
static const char *const RANK_VARIABLES[] = {
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE=",
    "OMPI_APP_CTX_NUM_PROCS=",
    "OMPI_FIRST_RANKS=",
    "OMPI_NUM_APP_CTX=",
    "OMPI_FILE_LOCATION=",
    "OMPI_MCA_ess=",
    "OMPI_MCA_ess_base_",
    "OMPI_MCA_orte_app_num=",
    "OMPI_MCA_orte_bound_at_launch=",
    "OMPI_MCA_orte_ess_node_rank=",
    "OMPI_MCA_orte_ess_num_procs=",
    "OMPI_MCA_orte_hnp_uri=",
    "OMPI_MCA_orte_launch=",
    "OMPI_MCA_orte_local_daemon_uri=",
    "OMPI_MCA_orte_num_nodes=",
    "OMPI_MCA_orte_precondition_transports=",
    "OMPI_MCA_pmix=",
    "PMIX_NAMESPACE=",
    "PMIX_RANK=",
    "PMIX_ID=",
    "PMIX_SERVER_",
    "PMIX_SYSTEM_TMPDIR=",
    "PMIX_SECURITY_MODE=",
    "PMIX_GDS_MODULE=",
    "PMIX_BFROP_BUFFER_TYPE=",
    "PMIX_DSTORE_",
    "PMIX_HOSTNAME=",
    "PMIX_VERSION=",
};

/* The working directory is mpirun's choice. The release is resolved once: modules that are imported late must not come
 * from a release that `provision` installed meanwhile. */
static const char SCRIPT[] = "cd \"$HOME\" && PYTHONPATH=$(readlink -f .clusterctl/agent/current) "
                             "exec python3 -m phone_agent \"$@\"";

static char environment[MAX_ENVIRONMENT];
static const char *variables[MAX_VARIABLES + 1];
static const char *words[4 + MAX_WORDS + 1] = {"bash", "-c", SCRIPT, "bash"};
static int count;

static usize length_of(const char *text) {
    usize length = 0;
    while (text[length]) length++;
    return length;
}

static int starts_with(const char *text, const char *prefix) {
    while (*prefix)
        if (*text++ != *prefix++) return 0;
    return 1;
}

static void __attribute__((noreturn)) fail(const char *message) {
    call(SYS_write, 2, (long)message, (long)length_of(message));
    for (;;) call(SYS_exit_group, NOT_STARTED, 0, 0);
}

static int is_rank_variable(const char *variable) {
    for (usize i = 0; i < sizeof RANK_VARIABLES / sizeof *RANK_VARIABLES; i++)
        if (starts_with(variable, RANK_VARIABLES[i])) return 1;
    return 0;
}

static void add_variable(const char *variable) {
    if (count == MAX_VARIABLES) fail("rank_launcher: too many environment variables\n");
    variables[count++] = variable;
}

/* /proc/PID/environ */
static const char *environment_file(long pid) {
    static char path[32] = "/proc/";
    char digits[10];
    int used = 0, at = 6;
    for (; pid && used < 10; pid /= 10) digits[used++] = (char)('0' + pid % 10);
    while (used) path[at++] = digits[--used];
    for (const char *rest = "/environ"; *rest; rest++) path[at++] = *rest;
    path[at] = 0;
    return path;
}

/* As the daemon was started: what mpirun sent to it later is not part of it. */
static void add_environment_of_daemon(void) {
    enum { CURRENT_DIRECTORY = -100 };
    long file = call(SYS_openat, CURRENT_DIRECTORY, (long)environment_file(call(SYS_getppid, 0, 0, 0)), 0);
    long size = 0, got = -1;
    while (file >= 0 && size < MAX_ENVIRONMENT - 1 &&
           (got = call(SYS_read, file, (long)(environment + size), MAX_ENVIRONMENT - 1 - size)) > 0)
        size += got;
    if (got != 0) fail("rank_launcher: the environment of the daemon cannot be read\n");
    for (const char *variable = environment; variable < environment + size; variable += length_of(variable) + 1)
        if (!is_rank_variable(variable)) add_variable(variable);
}

static void add_rank_variables(const char *const *from_mpirun) {
    for (; *from_mpirun; from_mpirun++)
        if (is_rank_variable(*from_mpirun)) add_variable(*from_mpirun);
}

/* bash in a directory of the daemon's PATH, which ends with ':' or 0. Returns if it is not there. */
static void exec_bash_in(const char *directory, usize length) {
    static char path[MAX_PATH];
    static const char name[] = "/bash";
    if (length + sizeof name > sizeof path) return;
    for (usize i = 0; i < length; i++) path[i] = directory[i];
    for (usize i = 0; i < sizeof name; i++) path[length + i] = name[i];
    call(SYS_execve, (long)path, (long)words, (long)variables);
}

static void exec_bash(void) {
    for (int i = 0; i < count; i++) {
        if (!starts_with(variables[i], "PATH=")) continue;
        for (const char *directory = variables[i] + length_of("PATH="), *end; *directory;
             directory = end + (*end != 0)) {
            for (end = directory; *end && *end != ':';) end++;
            exec_bash_in(directory, (usize)(end - directory));
        }
    }
    fail("rank_launcher: no bash in PATH\n");
}

static void take_verb(int argc, const char *const *argv) {
    for (int i = 1; i < argc && i <= MAX_WORDS; i++) {
        if (i > 1 && argv[i][0] == '-' && argv[i][1] == '-' && !argv[i][2]) return;
        words[3 + i] = argv[i];
    }
    fail("usage: rank_launcher VERB... -- IGNORED...\n");
}

/* The stack of a new process: the number of arguments, the arguments, 0, the environment, 0. */
__attribute__((used, noreturn)) void start(const long *stack) {
    const char *const *argv = (const char *const *)(stack + 1);
    take_verb((int)*stack, argv);
    add_environment_of_daemon();
    add_rank_variables(argv + *stack + 1);
    exec_bash();
    for (;;) {
    }
}
