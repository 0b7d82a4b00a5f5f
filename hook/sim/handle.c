/* Handles: fixed entries in one arena (see sim.h). Freed entries are reused as late as possible, so that stale handles
 * are detected. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

#define ENTRY_BYTES 512u
#define ENTRIES (1u << 20)
#define CHUNK 4096u

/* Only programs with a leak checker have this function. It makes the leak checker accept memory to which only a handle
 * points. */
extern void __lsan_register_root_region(const void *start, size_t size) __attribute__((weak));

struct entry { uint32_t kind, next; };

_Static_assert(sizeof(struct CUctx_st) <= ENTRY_BYTES && sizeof(struct CUstream_st) <= ENTRY_BYTES, "entry");
_Static_assert(sizeof(struct sim_kernel) <= ENTRY_BYTES, "entry");

static char *arena;
static uint32_t used = 1, free_first, free_last; /* entry numbers; 0: none */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct entry *entry_at(uint32_t number) { return (struct entry *)(arena + (size_t)number * ENTRY_BYTES); }

bool sim_handles_open(void)
{
    if (!arena) {
        void *mapped =
            mmap(NULL, (size_t)ENTRY_BYTES * ENTRIES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        arena = mapped == MAP_FAILED ? NULL : mapped;
    }
    return arena != NULL;
}

void *sim_handle_new(enum sim_handle_kind kind, size_t size)
{
    uint32_t number = 0;
    if (size > ENTRY_BYTES) return NULL;
    pthread_mutex_lock(&mutex);
    if (used < ENTRIES && (!free_first || used < 4096)) {
        if (__lsan_register_root_region && (used == 1 || used % CHUNK == 0))
            __lsan_register_root_region(entry_at(used / CHUNK * CHUNK), (size_t)CHUNK * ENTRY_BYTES);
        number = used++;
    } else if (free_first) {
        number = free_first;
        free_first = entry_at(number)->next;
        if (!free_first) free_last = 0;
    }
    pthread_mutex_unlock(&mutex);
    if (!number) return NULL;
    memset(entry_at(number), 0, ENTRY_BYTES);
    entry_at(number)->kind = kind;
    return entry_at(number);
}

void sim_handle_free(void *handle)
{
    uint32_t number = (uint32_t)(((char *)handle - arena) / ENTRY_BYTES);
    pthread_mutex_lock(&mutex);
    *entry_at(number) = (struct entry){SIM_FREE, 0};
    if (free_last) entry_at(free_last)->next = number;
    else free_first = number;
    free_last = number;
    pthread_mutex_unlock(&mutex);
}

bool sim_handle_is(const void *handle, enum sim_handle_kind kind)
{
    size_t offset = (size_t)((const char *)handle - arena);
    return arena && (const char *)handle > arena && offset < (size_t)ENTRY_BYTES * ENTRIES && offset % ENTRY_BYTES == 0 &&
           ((const struct entry *)handle)->kind == (uint32_t)kind;
}
