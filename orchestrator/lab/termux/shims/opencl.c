/* The vendor's OpenCL library, which registers with no loader and is loaded by its path.
 *
 * FORWARDED: the host has OpenCL drivers. All calls but one go to the host's loader, which this library links to and
 * which finds the drivers in its own directory. Otherwise this library is a driver without a GPU: one platform, no
 * device. Either way there is no platform if the scenario disables it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCENARIO_FILE "/system/scenario/opencl"
#define HOST_BIN "/apex/host/bin"

enum { SUCCESS = 0, DEVICE_NOT_FOUND = -1, INVALID_VALUE = -30, PLATFORM_NAME = 0x0902, PLATFORM_VENDOR = 0x0903 };

typedef struct platform {
    const char *name;
} platform;

static int is_disabled(void) {
    char text[16] = "";
    int file = open(SCENARIO_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    return length > 0 && strncmp(text, "no-platform", 11) == 0;
}

#ifdef FORWARDED

typedef int get_platforms(unsigned, platform **, unsigned *);

/* Where the loader looks for drivers. PoCL links its compiled kernels with the host's ld, which it looks up in PATH.
 * Both apply to this process and its children. */
__attribute__((constructor)) static void set_search_paths(void) {
    setenv("OCL_ICD_VENDORS", "/vendor/etc/OpenCL/vendors", 1);
    const char *path = getenv("PATH");
    char new_path[4096];
    if (!path || strstr(path, HOST_BIN) || strlen(path) + sizeof HOST_BIN + 1 > sizeof new_path) return;
    strcat(strcat(strcpy(new_path, path), ":"), HOST_BIN);
    setenv("PATH", new_path, 1);
}

int clGetPlatformIDs(unsigned capacity, platform **platforms, unsigned *count) {
    void *loader = is_disabled() ? NULL : dlopen("libOpenCL.so.1", RTLD_LAZY);
    get_platforms *forwarded = loader ? (get_platforms *)dlsym(loader, "clGetPlatformIDs") : NULL;
    if (forwarded) return forwarded(capacity, platforms, count);
    if (count) *count = 0;
    return SUCCESS;
}

#else

static platform snapdragon = {"QUALCOMM Snapdragon(TM)"};

int clGetPlatformIDs(unsigned capacity, platform **platforms, unsigned *count) {
    unsigned available = is_disabled() ? 0 : 1;
    if (count) *count = available;
    if (platforms && capacity && available) platforms[0] = &snapdragon;
    return SUCCESS;
}

int clGetPlatformInfo(platform *id, unsigned what, size_t capacity, void *value, size_t *size) {
    if (what < PLATFORM_NAME - 2 || what > PLATFORM_VENDOR + 1) return INVALID_VALUE;
    const char *text = what == PLATFORM_NAME || what == PLATFORM_VENDOR ? id->name : "";
    if (size) *size = strlen(text) + 1;
    if (value && capacity > strlen(text)) strcpy(value, text);
    return SUCCESS;
}

int clGetDeviceIDs(platform *id, unsigned long kind, unsigned capacity, void **devices, unsigned *count) {
    (void)id, (void)kind, (void)capacity, (void)devices;
    if (count) *count = 0;
    return DEVICE_NOT_FOUND;
}

#endif
