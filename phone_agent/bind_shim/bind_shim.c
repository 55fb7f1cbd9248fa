/* Open MPI listens on every address of a phone. This bind(), preloaded into Open MPI and everything it starts, moves
 * such a listener to the wired address in CLUSTERCTL_WIRED. IPv6 listeners, which are not used, move to the loopback
 * address.
 *
 * No headers and no libraries: libc's symbols (bionic's or glibc's) are found when the shim is loaded. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

enum { AF_INET = 2, AF_INET6 = 10 };

struct ipv4 {
    u16 family, port;
    u8 address[4];
    u8 unused[8];
};
struct ipv6 {
    u16 family, port;
    u32 flow;
    u8 address[16];
    u32 scope;
};

extern int *__errno(void) __attribute__((weak));          /* bionic */
extern int *__errno_location(void) __attribute__((weak)); /* glibc */
extern char *getenv(const char *) __attribute__((weak));

static long sys_bind(long socket, const void *address, long size) {
#if defined(__aarch64__)
    register long x0 __asm__("x0") = socket;
    register const void *x1 __asm__("x1") = address;
    register long x2 __asm__("x2") = size;
    register long x8 __asm__("x8") = 200;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
    return x0;
#elif defined(__x86_64__)
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(49L), "D"(socket), "S"(address), "d"(size)
                     : "rcx", "r11", "memory");
    return result;
#else
#error "no system calls known for this processor"
#endif
}

static int set_errno(long result) {
    if (result >= 0) return 0;
    int *code = __errno ? __errno() : __errno_location ? __errno_location() : 0;
    if (code) *code = (int)-result;
    return -1;
}

/* Parse "10.77.1.3" into four bytes. Returns 0 if it is not an address. */
static int parse_ipv4(const char *text, u8 *address) {
    for (int part = 0; part < 4; part++) {
        int value = 0, digits = 0;
        for (; *text >= '0' && *text <= '9' && digits < 4; text++, digits++) value = value * 10 + (*text - '0');
        if (!digits || value > 255 || *text != (part < 3 ? '.' : '\0')) return 0;
        address[part] = (u8)value;
        text++;
    }
    return 1;
}

static int is_any_address(const u8 *address, int size) {
    for (int i = 0; i < size; i++)
        if (address[i]) return 0;
    return 1;
}

__attribute__((visibility("default"))) int bind(int socket, const void *address, u32 size) {
    const char *wired = getenv ? getenv("CLUSTERCTL_WIRED") : 0;
    u8 bytes[4];
    if (!wired || !address || !parse_ipv4(wired, bytes)) return set_errno(sys_bind(socket, address, size));
    const struct ipv4 *v4 = address;
    if (size >= sizeof(struct ipv4) && v4->family == AF_INET && is_any_address(v4->address, 4)) {
        struct ipv4 copy = *v4;
        for (int i = 0; i < 4; i++) copy.address[i] = bytes[i];
        return set_errno(sys_bind(socket, &copy, sizeof copy));
    }
    const struct ipv6 *v6 = address;
    if (size >= sizeof(struct ipv6) && v6->family == AF_INET6 && is_any_address(v6->address, 16)) {
        struct ipv6 copy = *v6;
        copy.address[15] = 1;
        return set_errno(sys_bind(socket, &copy, sizeof copy));
    }
    return set_errno(sys_bind(socket, address, size));
}
