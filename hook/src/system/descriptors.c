#include "system/descriptors.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2u
#endif
#define DESCRIPTORS_MOST (1u << 20) /* the kernel's default for what any process may have */

/* By system calls: a library that has its own sockets may have replaced close(), with one table for all threads. */
static void close_all(void)
{
    DIR *folder = opendir("/proc/thread-self/fd");
    if (folder == NULL) {
        struct rlimit limit;
        unsigned most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS_MOST ? (unsigned)limit.rlim_cur
                                                                                                   : DESCRIPTORS_MOST;
        for (unsigned descriptor = 0; descriptor < most; descriptor++) syscall(SYS_close, descriptor);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int descriptor = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && descriptor != dirfd(folder)) syscall(SYS_close, descriptor);
    }
    closedir(folder);
}

/* The first call does both; Linux before 5.9 and some filters of system calls have no such call. */
void orion_descriptors_leave(void)
{
    if (syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0) return;
    if (syscall(SYS_unshare, 0x400 /* CLONE_FILES */) == 0) close_all();
}
