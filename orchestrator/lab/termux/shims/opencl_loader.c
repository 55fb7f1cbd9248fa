/* Termux's OpenCL loader on a phone whose driver registers with no loader: programs link with it and find no
 * platform. */
#define PLATFORM_NOT_FOUND (-1001)

int clGetPlatformIDs(unsigned capacity, void **platforms, unsigned *count) {
    (void)capacity, (void)platforms;
    if (count) *count = 0;
    return PLATFORM_NOT_FOUND;
}
