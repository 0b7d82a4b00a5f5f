#include "agent/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy.h"
#include "process.h"
#include "system.h"
#include "thread.h"
#include "be/chunks.h"
#include "generated/driver.h"
#include "streams/capture.h"
#include "threads/inprocess.h"

#define OWN_PAGES 4u /* policy, grant, busy, record; the neighbours come behind */
#define AWAIT_JOIN_NS (250 * ORION_MILLISECOND) /* from the GPU's first context; creating one takes as long itself */

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

static void *page_at(struct orion_board *board, size_t index)
{
    return (uint8_t *)(uintptr_t)board->policy + index * ORION_PAGE_SIZE;
}

static int reserve(struct orion_board *board)
{
    size_t bytes = (OWN_PAGES + ORION_PLACES) * (size_t)ORION_PAGE_SIZE;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return -1;
    if (madvise(pages, bytes, MADV_DONTFORK) != 0) {
        munmap(pages, bytes);
        return -1;
    }
    board->policy = pages;
    board->grant = page_at(board, 1);
    board->busy = page_at(board, 2);
    board->record = page_at(board, 3);
    board->neighbours = page_at(board, OWN_PAGES);
    return 0;
}

static int name_device(struct orion_board *board)
{
    CUuuid uuid;
    if (orion_driver.cuDeviceGetUuid_v2(&uuid, board->device) != CUDA_SUCCESS) return -1;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(board->uuid, sizeof board->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
             b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return 0;
}

/* Under MPS contexts run together. The driver says so; where it is too old to know, they are taken to run by turns. */
static void find_out_sharing(struct orion_board *board)
{
    int mps = 0;
    bool known = orion_driver.cuDeviceGetAttribute != NULL &&
                 orion_driver.cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, board->device) == CUDA_SUCCESS;
    atomic_store(&board->sharing, known && mps ? ORION_SHARING_TOGETHER : ORION_SHARING_BY_TURNS);
}

static bool is_of(const struct orion_board *board, CUdevice device) { return board->client == 0 && board->device == device; }

/* The places are filled in order; `made_ns` is set last and says that a place is whole. */
struct orion_board *orion_board_of(CUdevice device)
{
    struct orion_process *process = orion_process_started();
    if (process == NULL) return NULL;
    uint32_t count = atomic_load(&process->board_count);
    for (uint32_t i = 0; i < count && i < ORION_BOARDS; i++)
        if (is_of(&process->boards[i], device) && atomic_load(&process->boards[i].made_ns) != 0) return &process->boards[i];
    return orion_board_make(process, device);
}

/* Registered behind the driver's own handlers, so it runs before them: from here on the hook's threads call the driver no
 * more, and no stream waits for the valve. */
static void at_exit(void)
{
    struct orion_process *process = orion_the_process;
    if (process == NULL || atomic_load(&process->board_count) == 0) return; /* a forked child finds itself wiped */
    orion_forbid_touch(process);
    orion_valve_open_all(process);
    for (uint32_t i = 0; i < atomic_load(&process->board_count) && i < ORION_BOARDS; i++)
        if (orion_ledger_take(&process->boards[i])) orion_ledger_give(&process->boards[i]); /* a look in progress has ended */
}

struct orion_board *orion_board_make(struct orion_process *process, CUdevice device)
{
    while (atomic_exchange(&process->board_making, 1)) orion_pause();
    struct orion_board *made = NULL;
    uint32_t count = atomic_load(&process->board_count);
    bool first = true;
    for (uint32_t i = 0; i < count; i++) {
        if (is_of(&process->boards[i], device)) made = &process->boards[i];
        first = first && process->boards[i].client != 0;
    }
    if (made == NULL && count < ORION_BOARDS) {
        struct orion_board *board = &process->boards[count];
        board->device = device;
        if (name_device(board) == 0 && reserve(board) == 0) {
            find_out_sharing(board);
            bool joins = !orion_inprocess_runs(process); /* else the threads' clients have boards of their own */
            if (joins) atomic_fetch_add(&process->joining, 1);
            else atomic_store(&board->join, ORION_JOIN_UNMANAGED);
            atomic_store(&board->made_ns, orion_now());
            atomic_store(&process->board_count, count + 1);
            if (joins) orion_thread_start(process, board);
            made = board;
            if (first) atexit(at_exit);
        }
    }
    atomic_store(&process->board_making, 0);
    return made;
}

void orion_board_await_join(struct orion_board *board)
{
    uint32_t state;
    while ((state = atomic_load(&board->join)) <= ORION_JOIN_TRYING) {
        uint64_t now = orion_now(), until = atomic_load(&board->made_ns) + AWAIT_JOIN_NS;
        if (now >= until) return;
        orion_futex_wait(&board->join, state, until - now, false);
    }
}

/* -- Pages ----------------------------------------------------------------------------------------------------------- */

static const uint32_t kinds[] = {ORION_PAGE_POLICY, ORION_PAGE_GRANT, ORION_PAGE_BUSY, ORION_PAGE_RECORD};

/* Whether fd is one of this GPU's pages, and one that nobody can shrink under its readers. */
static bool is_page(const struct orion_board *board, int fd, uint32_t kind)
{
    struct stat status;
    struct orion_page_header header;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) return false;
    if (fstat(fd, &status) != 0 || status.st_size != ORION_PAGE_SIZE) return false;
    if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) return false;
    bool known = header.layout >= ORION_LAYOUT_OLDEST && header.layout <= ORION_LAYOUT_VERSION + 1;
    return header.magic == ORION_PAGE_MAGIC && known && header.kind == kind &&
           memcmp(header.gpu, board->uuid, sizeof header.gpu) == 0;
}

static int map_over(void *address, int fd, bool writable)
{
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED);
    int protection = PROT_READ | (writable || fd < 0 ? PROT_WRITE : 0);
    if (mmap(address, ORION_PAGE_SIZE, protection, flags, fd, 0) == MAP_FAILED) return -1;
    return madvise(address, ORION_PAGE_SIZE, MADV_DONTFORK);
}

int orion_board_map(struct orion_board *board, enum orion_board_page page, int fd)
{
    bool own = page == ORION_BOARD_BUSY || page == ORION_BOARD_RECORD;
    return is_page(board, fd, kinds[page]) ? map_over(page_at(board, page), fd, own) : -1;
}

/* The list changes so that a reader at any moment sees every hp client that stays: appended before it is counted, and
 * the last one copied into a hole before the count shrinks. */
static void list_neighbour(struct orion_board *board, uint32_t place)
{
    uint32_t count = atomic_load(&board->hp_count);
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load(&board->hp_place[i]) == place) return;
    atomic_store(&board->hp_place[count], (uint16_t)place);
    atomic_store(&board->hp_count, count + 1);
}

static void unlist_neighbour(struct orion_board *board, uint32_t place)
{
    uint32_t count = atomic_load(&board->hp_count);
    for (uint32_t i = 0; i < count; i++) {
        if (atomic_load(&board->hp_place[i]) != place) continue;
        atomic_store(&board->hp_place[i], atomic_load(&board->hp_place[count - 1]));
        atomic_store(&board->hp_count, count - 1);
        return;
    }
}

int orion_board_map_neighbour(struct orion_board *board, uint32_t place, uint32_t generation, int fd)
{
    if (place >= ORION_PLACES || generation == 0 || !is_page(board, fd, ORION_PAGE_BUSY)) return -1;
    if (map_over(page_at(board, OWN_PAGES + place), fd, false) != 0) return -1;
    atomic_store(&board->given_up_on[place], 0);
    atomic_store(&board->seen_progress[place], 0);
    atomic_store(&board->hp_generation[place], generation);
    list_neighbour(board, place);
    return 0;
}

void orion_board_drop_neighbour(struct orion_board *board, uint32_t place, uint32_t generation)
{
    if (place >= ORION_PLACES || atomic_load(&board->hp_generation[place]) != generation) return;
    atomic_store(&board->hp_generation[place], 0);
    unlist_neighbour(board, place);
    map_over(page_at(board, OWN_PAGES + place), -1, false);
}
