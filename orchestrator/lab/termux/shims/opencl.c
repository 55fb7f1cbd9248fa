/* The vendor's OpenCL library, which no loader finds and which is loaded by its path.
 *
 * FORWARDED: this computer has drivers for OpenCL. All calls but one reach its loader, which this library needs and which
 * finds those drivers in a place of its own. Otherwise it is a driver as far as one can ask it without a GPU: one platform,
 * never a device. Either way there is no platform where the scenario says so.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOLD "/system/scenario/opencl"
#define HOST_BIN "/apex/host/bin"

enum { SUCCESS = 0, DEVICE_NOT_FOUND = -1, INVALID_VALUE = -30, PLATFORM_NAME = 0x0902, PLATFORM_VENDOR = 0x0903 };

typedef struct platform {
    const char *name;
} platform;

static int is_none(void) {
    char text[8] = "";
    int file = open(TOLD, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    return length > 0 && strncmp(text, "none", 4) == 0;
}

#ifdef FORWARDED

typedef int get_platforms(unsigned, platform **, unsigned *);

/* The loader looks for drivers here. PoCL links the kernels it compiled with this computer's ld, which it looks for in
 * PATH. Both are for this process, which computes, and for what it starts. */
__attribute__((constructor)) static void say_where_things_are(void) {
    setenv("OCL_ICD_VENDORS", "/vendor/etc/OpenCL/vendors", 1);
    const char *path = getenv("PATH");
    char longer[4096];
    if (!path || strstr(path, HOST_BIN) || strlen(path) + sizeof HOST_BIN + 1 > sizeof longer) return;
    strcat(strcat(strcpy(longer, path), ":"), HOST_BIN);
    setenv("PATH", longer, 1);
}

int clGetPlatformIDs(unsigned room, platform **platforms, unsigned *count) {
    void *loader = is_none() ? NULL : dlopen("libOpenCL.so.1", RTLD_LAZY);
    get_platforms *forwarded = loader ? (get_platforms *)dlsym(loader, "clGetPlatformIDs") : NULL;
    if (forwarded) return forwarded(room, platforms, count);
    if (count) *count = 0;
    return SUCCESS;
}

#else

static platform snapdragon = {"QUALCOMM Snapdragon(TM)"};

int clGetPlatformIDs(unsigned room, platform **platforms, unsigned *count) {
    unsigned available = is_none() ? 0 : 1;
    if (count) *count = available;
    if (platforms && room && available) platforms[0] = &snapdragon;
    return SUCCESS;
}

int clGetPlatformInfo(platform *asked, unsigned what, size_t room, void *value, size_t *size) {
    if (what < PLATFORM_NAME - 2 || what > PLATFORM_VENDOR + 1) return INVALID_VALUE;
    const char *text = what == PLATFORM_NAME || what == PLATFORM_VENDOR ? asked->name : "";
    if (size) *size = strlen(text) + 1;
    if (value && room > strlen(text)) strcpy(value, text);
    return SUCCESS;
}

int clGetDeviceIDs(platform *asked, unsigned long kind, unsigned room, void **devices, unsigned *count) {
    (void)asked, (void)kind, (void)room, (void)devices;
    if (count) *count = 0;
    return DEVICE_NOT_FOUND;
}

#endif
