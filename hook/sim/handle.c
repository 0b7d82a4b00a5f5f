/* Handles: fixed entries in one arena (see sim.h). Freed entries are reused as late as possible, so that stale handles
 * are detected. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

#define PLACE 512u
#define PLACES (1u << 20)
#define CHUNK 4096u

/* Present only in a program with a leak checker: what a handle points to is not a leak. */
extern void __lsan_register_root_region(const void *start, size_t size) __attribute__((weak));

struct client_index { uint32_t kind, next; };

_Static_assert(sizeof(struct CUctx_st) <= PLACE && sizeof(struct CUstream_st) <= PLACE, "client_index");
_Static_assert(sizeof(struct sim_kernel) <= PLACE, "client_index");

static char *arena;
static uint32_t used = 1, free_first, free_last; /* entry numbers; 0: none */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct client_index *client_index_at(uint32_t number) { return (struct client_index *)(arena + (size_t)number * PLACE); }

bool sim_handles_open(void)
{
    if (!arena) {
        void *mapped =
            mmap(NULL, (size_t)PLACE * PLACES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        arena = mapped == MAP_FAILED ? NULL : mapped;
    }
    return arena != NULL;
}

void *sim_handle_new(enum sim_handle_kind kind, size_t size)
{
    uint32_t number = 0;
    if (size > PLACE) return NULL;
    pthread_mutex_lock(&mutex);
    if (used < PLACES && (!free_first || used < 4096)) {
        if (__lsan_register_root_region && (used == 1 || used % CHUNK == 0))
            __lsan_register_root_region(client_index_at(used / CHUNK * CHUNK), (size_t)CHUNK * PLACE);
        number = used++;
    } else if (free_first) {
        number = free_first;
        free_first = client_index_at(number)->next;
        if (!free_first) free_last = 0;
    }
    pthread_mutex_unlock(&mutex);
    if (!number) return NULL;
    memset(client_index_at(number), 0, PLACE);
    client_index_at(number)->kind = kind;
    return client_index_at(number);
}

void sim_handle_free(void *handle)
{
    uint32_t number = (uint32_t)(((char *)handle - arena) / PLACE);
    pthread_mutex_lock(&mutex);
    *client_index_at(number) = (struct client_index){SIM_FREE, 0};
    if (free_last) client_index_at(free_last)->next = number;
    else free_first = number;
    free_last = number;
    pthread_mutex_unlock(&mutex);
}

bool sim_handle_is(const void *handle, enum sim_handle_kind kind)
{
    size_t offset = (size_t)((const char *)handle - arena);
    return arena && (const char *)handle > arena && offset < (size_t)PLACE * PLACES && offset % PLACE == 0 &&
           ((const struct client_index *)handle)->kind == (uint32_t)kind;
}
