#include "process/process.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "system/system.h"

struct orion_process *orion_the_process;

static struct orion_process *mapped(void)
{
    struct orion_process *process = __atomic_load_n(&orion_the_process, __ATOMIC_ACQUIRE);
    if (process != NULL) return process;
    void *memory =
        mmap(NULL, sizeof(struct orion_mapping), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (madvise(memory, sizeof(struct orion_mapping), MADV_WIPEONFORK) != 0) { /* Linux before 4.14: run without the hook */
        munmap(memory, sizeof(struct orion_mapping));
        return NULL;
    }
    if (__atomic_compare_exchange_n(&orion_the_process, &process, memory, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return memory;
    munmap(memory, sizeof(struct orion_mapping));
    return process;
}

struct orion_process *orion_process_started(void)
{
    int kept = errno;
    struct orion_process *process = mapped();
    errno = kept;
    if (process == NULL) return NULL;
    uint32_t fresh = 0;
    if (atomic_compare_exchange_strong(&process->started, &fresh, 1)) {
        /* A forked child's thread still remembers the parent's stream records in thread-local memory. Another epoch for
         * each process makes these invalid. */
        atomic_store(&process->stream_record_epoch, (uint32_t)getpid() << 8);
        atomic_store(&process->started, 2);
    }
    while (atomic_load(&process->started) != 2) orion_pause();
    return process;
}
