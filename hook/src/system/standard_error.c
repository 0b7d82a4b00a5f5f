#include "system/standard_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stat first; /* zero: descriptor 2 was closed */

__attribute__((constructor)) static void look_early(void)
{
    if (fstat(STDERR_FILENO, &first) != 0) first = (struct stat){0};
}

bool orion_is_standard_error(int fd)
{
    struct stat now;
    if (fstat(fd, &now) != 0) return false;
    if (now.st_dev == first.st_dev && now.st_ino == first.st_ino) return true;
    int flags = fcntl(fd, F_GETFL);
    return S_ISFIFO(now.st_mode) || (S_ISREG(now.st_mode) && flags >= 0 && (flags & O_APPEND) != 0) || isatty(fd);
}
