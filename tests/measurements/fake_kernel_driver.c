/* A library to preload: a kernel driver with one compute group and one copy group, for tests of a probe and of the hook.
 * It appends each slice that is set to the file that FAKE_KERNEL_DRIVER_LOG names. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

struct allocation { uint32_t client, parent, object, class; uint64_t parameters, rights; uint32_t size, flags, status, unused; };
struct control { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; };
static uint64_t slice_us;

static void allocate(uint32_t engine)
{
    uint32_t parameters[5] = {0, 0, 0, engine, 0};
    struct allocation made = {1, 2, 0, 0xA06C, (uintptr_t)parameters, 0, sizeof parameters, 0, 0, 0};
    ioctl(-1, _IOWR('F', 0x2B, struct allocation), &made);
}

__attribute__((constructor)) static void as_cuda_starts(void)
{
    uint64_t us = 2048;
    struct control wanted = {1, 101, 0xA06C0103, 0, (uintptr_t)&us, 8, 0};
    allocate(1);
    allocate(9);
    ioctl(-1, _IOWR('F', 0x2A, struct control), &wanted);
}

static void log_slice(void)
{
    const char *path = getenv("FAKE_KERNEL_DRIVER_LOG");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file == NULL) return;
    fprintf(file, "%llu\n", (unsigned long long)slice_us);
    fclose(file);
}

static uint32_t control(struct control *wanted)
{
    uint64_t *value = (uint64_t *)(uintptr_t)wanted->parameters;
    if (wanted->object != 101) return 0x57; /* not an object */
    if (wanted->command == 0xA06C0103) {
        slice_us = *value;
        log_slice();
    }
    if (wanted->command == 0xA06C0104) *value = slice_us;
    return wanted->command == 0xA06C0107 ? 0x1B : 0; /* the interleave level is refused */
}

__attribute__((visibility("default"))) int ioctl(int file, unsigned long request, ...)
{
    va_list rest;
    (void)file;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (_IOC_NR(request) == 0x2B) {
        struct allocation *made = argument;
        made->object = 100 + ((uint32_t *)(uintptr_t)made->parameters)[3];
    }
    if (_IOC_NR(request) == 0x2A) ((struct control *)argument)->status = control(argument);
    return 0;
}
