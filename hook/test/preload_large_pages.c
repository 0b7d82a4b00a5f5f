/* A second preload library that makes a program see the memory of a kernel with pages of 64 KiB, as those of some machines with arm64:
 * a fixed address of mmap, and an address of madvise, must be a multiple of that. */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LARGE ((size_t)1 << 16)

static size_t whole(size_t bytes) { return (bytes + LARGE - 1) & ~(LARGE - 1); }

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_FIXED) != 0 && (uintptr_t)address % LARGE != 0) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (address != NULL) return map(address, bytes, protection, flags, fd, offset);
    char *room = map(NULL, whole(bytes) + LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return MAP_FAILED;
    size_t before = (LARGE - (uintptr_t)room % LARGE) % LARGE;
    return map(room + before, bytes, protection, flags | MAP_FIXED, fd, offset); /* the rest of the room stays */
}

int madvise(void *address, size_t bytes, int advice)
{
    if ((uintptr_t)address % LARGE == 0) return (int)syscall(SYS_madvise, address, bytes, advice);
    errno = EINVAL;
    return -1;
}

long sysconf(int name)
{
    long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE ? (long)LARGE : next(name);
}
