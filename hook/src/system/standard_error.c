#include "system/standard_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stat first; /* zero: descriptor 2 was closed */
static bool looked;

/* Before the program's first thread, so before any other one. */
__attribute__((constructor)) static void look(void)
{
    if (!looked && fstat(STDERR_FILENO, &first) != 0) first = (struct stat){0};
    looked = true;
}

bool orion_is_standard_error(int fd)
{
    struct stat now;
    look(); /* a constructor of another library may say something before this one's */
    if (fstat(fd, &now) != 0) return false;
    if (now.st_dev == first.st_dev && now.st_ino == first.st_ino) return true;
    int flags = fcntl(fd, F_GETFL);
    return S_ISFIFO(now.st_mode) || (S_ISREG(now.st_mode) && flags >= 0 && (flags & O_APPEND) != 0) || isatty(fd);
}
