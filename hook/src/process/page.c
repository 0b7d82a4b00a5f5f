#include "process/page.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

bool orion_page_has_kind(int fd, uint32_t kind, struct orion_page_header *header)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) return false;
    if (fstat(fd, &status) != 0 || status.st_size != ORION_PAGE_SIZE) return false;
    if (pread(fd, header, sizeof *header, 0) != (ssize_t)sizeof *header) return false;
    bool known = header->layout >= ORION_LAYOUT_OLDEST && header->layout <= ORION_LAYOUT_NEWEST + 1;
    return header->magic == ORION_PAGE_MAGIC && known && header->kind == kind;
}

bool orion_page_is(int fd, uint32_t kind, const char *gpu)
{
    struct orion_page_header header;
    return orion_page_has_kind(fd, kind, &header) && memcmp(header.gpu, gpu, sizeof header.gpu) == 0;
}

size_t orion_page_step(void)
{
    long step = sysconf(_SC_PAGESIZE);
    return step > (long)ORION_PAGE_SIZE ? (size_t)step : ORION_PAGE_SIZE;
}

int orion_page_map_over(void *address, int fd, bool writable)
{
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED);
    int protection = PROT_READ | (writable || fd < 0 ? PROT_WRITE : 0);
    if (mmap(address, ORION_PAGE_SIZE, protection, flags, fd, 0) == MAP_FAILED) return -1;
    return madvise(address, ORION_PAGE_SIZE, MADV_DONTFORK);
}
