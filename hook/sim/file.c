/* The shared file (see file.h). It is created under another name and then linked into place, so other processes see a
 * complete file or none.
 *
 * The process keeps the descriptor to map later regions. If the program closes this descriptor, the driver opens the
 * path again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "parameters.h"

#define PAGE 4096u
#define ROUND_UP(size) (((size) + PAGE - 1) / PAGE * PAGE)
#define HEADER_SIZE ROUND_UP(sizeof(struct sim_header))
#define REGION_SIZE \
    (ROUND_UP(sizeof(struct sim_region)) + PAGE) /* the last page is unused: a process that grows the file writes there */
#define LAYOUT (SIM_LAYOUT * UINT64_C(1000003) + sizeof(struct sim_header) * 31 + sizeof(struct sim_region))
#define RETIRED 16
#define CLAIMS (INT64_C(1) << 62) /* record locks lie far behind the end of the file */

static int file = -1;
static struct stat identity;
static char path[PATH_MAX];

static void read_boot(char boot[40])
{
    memset(boot, 0, 40);
    int descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    if (read(descriptor, boot, 36) != 36) memset(boot, 0, 40);
    close(descriptor);
}

static bool grow(int descriptor, uint64_t size)
{
    struct stat now;
    char zero = 0; /* a write, not ftruncate: two processes that grow the file at once must not shrink it */
    return fstat(descriptor, &now) == 0 && ((uint64_t)now.st_size >= size || pwrite(descriptor, &zero, 1, (off_t)(size - 1)) == 1);
}

static bool fill(int descriptor)
{
    if (!grow(descriptor, HEADER_SIZE + REGION_SIZE)) return false;
    struct sim_header *header = mmap(NULL, HEADER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (header == MAP_FAILED) return false;
    header->magic = SIM_MAGIC;
    header->layout = LAYOUT;
    read_boot(header->boot);
    header->parameters = sim_parameters_from_environment();
    atomic_store(&header->next_region, 1);
    atomic_store(&header->virtual_ns, 1000000000u);
    munmap(header, HEADER_SIZE);
    struct sim_region *region =
        mmap(NULL, REGION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, (off_t)HEADER_SIZE);
    if (region == MAP_FAILED) return false;
    atomic_store(&region->state.next_ns, SIM_NEVER);
    munmap(region, REGION_SIZE);
    return true;
}

static bool make(void)
{
    char temporary[PATH_MAX + 32];
    /* The name contains the time, not the process id, because processes in two containers may have the same id. */
    snprintf(temporary, sizeof temporary, "%s.%llu", path, (unsigned long long)sim_monotonic_ns());
    int descriptor = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) return false;
    fchmod(descriptor, 0666); /* as with /dev/nvidia0, every process that sees the file may use it */
    bool made = fill(descriptor) && (link(temporary, path) == 0 || errno == EEXIST);
    unlink(temporary);
    close(descriptor);
    return made;
}

/* Is the file of this layout and this boot? A sandbox without /proc cannot read the boot id, so it accepts the file's.
 * */
static bool fits(const struct sim_header *header)
{
    char boot[40];
    read_boot(boot);
    return header->magic == SIM_MAGIC && header->layout == LAYOUT && (!boot[0] || !memcmp(boot, header->boot, sizeof boot));
}

/* Returns the header of an existing file; NULL: no file, or a file that does not fit. A process that may make files
 * removes a file that does not fit. */
static struct sim_header *open_existing(bool maker)
{
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return NULL;
    struct sim_header *header = MAP_FAILED;
    if (fstat(descriptor, &identity) == 0 && identity.st_size >= (off_t)HEADER_SIZE)
        header = mmap(NULL, HEADER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (header != MAP_FAILED && fits(header)) {
        file = descriptor;
        return header;
    }
    if (header != MAP_FAILED) munmap(header, HEADER_SIZE);
    if (maker) unlink(path);
    close(descriptor);
    return NULL;
}

struct sim_header *sim_file_open(void)
{
    char folder[PATH_MAX - 16];
    sim_state_folder(folder, sizeof folder);
    bool maker = sim_may_make();
    if (maker && mkdir(folder, 0777) == 0 && geteuid() == 0)
        chmod(folder, 0755); /* all users of the host may use a machine that root makes, whatever root's umask is */
    snprintf(path, sizeof path, "%s/machine", folder);
    for (int attempt = 0; attempt < 10; attempt++) {
        struct sim_header *header = open_existing(maker);
        if (header) return header;
        if (!maker || !make()) return NULL;
    }
    return NULL;
}

static bool same_file(int descriptor)
{
    struct stat now;
    return fstat(descriptor, &now) == 0 && now.st_dev == identity.st_dev && now.st_ino == identity.st_ino;
}

static int descriptor_of_file(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    if (!same_file(file)) { /* the program closed the file and may have reused the number: do not close it */
        int again = open(path, O_RDWR | O_CLOEXEC);
        if (again >= 0 && !same_file(again)) {
            close(again);
            again = -1;
        }
        file = again;
    }
    int descriptor = file;
    pthread_mutex_unlock(&mutex);
    return descriptor;
}

struct sim_region *sim_file_region(uint64_t number)
{
    int descriptor = descriptor_of_file();
    uint64_t offset = HEADER_SIZE + number * REGION_SIZE;
    if (descriptor < 0 || !grow(descriptor, offset + REGION_SIZE)) return NULL;
    void *region = mmap(NULL, REGION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, (off_t)offset);
    return region == MAP_FAILED ? NULL : region;
}

void sim_file_unmap(struct sim_region *region) { munmap(region, REGION_SIZE); }

void sim_file_retire(struct sim_region *region)
{
    static struct sim_region *retired[RETIRED];
    static unsigned at;
    if (!region) return;
    struct sim_region **oldest = &retired[at++ % RETIRED];
    if (*oldest) sim_file_unmap(*oldest);
    *oldest = region;
}

void sim_file_forget(uint64_t number)
{
    int descriptor = descriptor_of_file();
    if (descriptor >= 0)
        fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(HEADER_SIZE + number * REGION_SIZE),
                  (off_t)(REGION_SIZE - PAGE));
}

static struct flock claim_of(uint64_t client_index, short kind)
{
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = CLAIMS + (off_t)client_index, .l_len = 1};
}

bool sim_file_claim(uint64_t client_index)
{
    struct flock lock = claim_of(client_index, F_WRLCK);
    return fcntl(descriptor_of_file(), F_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

void sim_file_unclaim(uint64_t client_index)
{
    struct flock lock = claim_of(client_index, F_UNLCK);
    fcntl(descriptor_of_file(), F_SETLK, &lock);
}

uint32_t sim_file_claimant(uint64_t client_index)
{
    struct flock lock = claim_of(client_index, F_WRLCK);
    /* The query is for this descriptor, not for this process, so that it also sees the process's own claim. */
    bool asked = fcntl(descriptor_of_file(), F_OFD_GETLK, &lock) == 0;
    return asked && lock.l_type != F_UNLCK && lock.l_pid > 0 ? (uint32_t)lock.l_pid : 0;
}
