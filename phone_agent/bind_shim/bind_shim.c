// Open MPI listens on every address a phone has. Preloaded into it and all it starts, this bind() puts such a listener
// on the wired address instead, which CLUSTERCTL_WIRED names; on IPv6, which is not used, on the phone itself.
//
// No header and no library: libc's own names are found when it is loaded, bionic's or glibc's.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

enum { AF_INET = 2, AF_INET6 = 10 };

struct ipv4 { u16 family, port; u8 address[4]; u8 unused[8]; };
struct ipv6 { u16 family, port; u32 flow; u8 address[16]; u32 scope; };

extern int *__errno(void) __attribute__((weak));           // bionic
extern int *__errno_location(void) __attribute__((weak));  // glibc
extern char *getenv(const char *) __attribute__((weak));

static long call_bind(long socket, const void *address, long size) {
#if defined(__aarch64__)
    register long x0 __asm__("x0") = socket;
    register const void *x1 __asm__("x1") = address;
    register long x2 __asm__("x2") = size;
    register long x8 __asm__("x8") = 200;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
    return x0;
#elif defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(49L), "D"(socket), "S"(address), "d"(size) : "rcx", "r11", "memory");
    return result;
#else
#error "no system calls known for this processor"
#endif
}

static int told(long result) {
    if (result >= 0) return 0;
    int *code = __errno ? __errno() : __errno_location ? __errno_location() : 0;
    if (code) *code = (int)-result;
    return -1;
}

// "10.77.1.3" to four bytes; 0 where it is no address.
static int parse(const char *text, u8 *address) {
    for (int part = 0; part < 4; part++) {
        int value = 0, digits = 0;
        for (; *text >= '0' && *text <= '9' && digits < 4; text++, digits++) value = value * 10 + (*text - '0');
        if (!digits || value > 255 || *text != (part < 3 ? '.' : '\0')) return 0;
        address[part] = (u8)value;
        text++;
    }
    return 1;
}

static int any(const u8 *address, int size) {
    for (int i = 0; i < size; i++)
        if (address[i]) return 0;
    return 1;
}

__attribute__((visibility("default"))) int bind(int socket, const void *address, u32 size) {
    const char *wired = getenv ? getenv("CLUSTERCTL_WIRED") : 0;
    u8 bytes[4];
    if (!wired || !address || !parse(wired, bytes)) return told(call_bind(socket, address, size));
    const struct ipv4 *four = address;
    if (size >= sizeof(struct ipv4) && four->family == AF_INET && any(four->address, 4)) {
        struct ipv4 copy = *four;
        for (int i = 0; i < 4; i++) copy.address[i] = bytes[i];
        return told(call_bind(socket, &copy, sizeof copy));
    }
    const struct ipv6 *six = address;
    if (size >= sizeof(struct ipv6) && six->family == AF_INET6 && any(six->address, 16)) {
        struct ipv6 copy = *six;
        copy.address[15] = 1;
        return told(call_bind(socket, &copy, sizeof copy));
    }
    return told(call_bind(socket, address, size));
}
