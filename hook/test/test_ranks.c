/* A process and its peers in the page of a job. The test itself plays the peers: it writes their words. */
#define _GNU_SOURCE /* memfd_create */
#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "be/collective.h"
#include "be/ranks.h"
#include "be/stop.h"
#include "be/work.h"
#include "streams/stream_records.h"
#include "fake_driver.h"
#include "streams/capture.h"
#include "system/system.h"

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static struct orion_process *process;
static struct orion_gpu *gpu;
static struct orion_job_page *page; /* as the peers see it */
static struct orion_rank *own, *peer;

static uint32_t in_ms(int32_t ms) { return (uint32_t)(orion_now() / ORION_MILLISECOND) + (uint32_t)ms; }

static int make_page(const char *name, uint32_t kind, int seals)
{
    struct orion_page_header header = {.magic = ORION_PAGE_MAGIC, .layout = ORION_LAYOUT_NEWEST, .kind = kind};
    snprintf(header.gpu, sizeof header.gpu, "%s", name);
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, ORION_PAGE_SIZE) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    CHECK(pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header);
    return fd;
}

static void set_hp(bool busy)
{
    struct orion_busy_page *hp = (struct orion_busy_page *)(uintptr_t)gpu->neighbours;
    atomic_store(&hp->heartbeat_ns, orion_now());
    atomic_store(&hp->state, busy ? ORION_BUSY : ORION_IDLE);
}

static void begin(void)
{
    gpu = fake_gpu(ORION_ROLE_BE);
    process = orion_process_started();
    struct orion_policy_page *policy = (struct orion_policy_page *)(uintptr_t)gpu->policy;
    atomic_store(&gpu->hp_count, 1);
    policy->copy[0].kind = ORION_POLICY_GATE;
    atomic_store(&policy->hp_clients, 1);
}

static void go_unarmed(uint32_t number)
{
    struct orion_stream_record stream_record = {.gpu = gpu};
    orion_collective_note_unarmed(process, &stream_record, &(struct orion_work){.collective = number});
}

/* A collective that goes at once. Returns its number; 0: only the gate of its own GPU stops it. */
static uint32_t run(void)
{
    uint32_t number = orion_collective_begin(process, gpu);
    if (number != 0) go_unarmed(number);
    return number;
}

/* -- Tests ------------------------------------------------------------------------------------------------------------ */

static void only_a_page_of_a_job_is_mapped(void)
{
    struct {
        int fd;
        uint32_t rank;
    } bad[] = {
        {make_page("job-1", ORION_PAGE_BUSY, SIZE_SEALS), 0},
        {make_page("job-1", ORION_PAGE_JOB, 0), 0},
        {make_page("job-1", ORION_PAGE_JOB, SIZE_SEALS), ORION_RANKS_MAX},
        {open("/dev/null", O_RDWR | O_CLOEXEC), 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(orion_gpu_map_job(gpu, bad[i].rank, bad[i].fd) != 0);
        close(bad[i].fd);
    }
    CHECK(atomic_load(&gpu->job) == NULL);
}

/* The job's page comes after the first collectives: their number goes on. */
static void the_first_page_stays(void)
{
    for (unsigned i = 0; i < 5; i++) CHECK(run() == 0);
    int fd = make_page("job-1", ORION_PAGE_JOB, SIZE_SEALS), other = make_page("job-2", ORION_PAGE_JOB, SIZE_SEALS);
    page = mmap(NULL, ORION_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    atomic_store(&page->ranks, 4);
    CHECK(orion_gpu_map_job(gpu, 1, fd) == 0);
    CHECK(orion_gpu_map_job(gpu, 3, other) != 0);
    CHECK(orion_gpu_map_job(gpu, 2, fd) == 0); /* the agent has taken the client back under another index */
    own = &page->rank[2], peer = &page->rank[0];
    CHECK(run() == 0); /* no peer is tied yet */
    CHECK(atomic_load(&own->tied) == 1 && atomic_load(&own->launched) == 6 && atomic_load(&own->begun) == 6);
    CHECK(atomic_load(&own->has_hp) == 1 && atomic_load(&page->rank[1].tied) == 0);
    close(fd), close(other);
}

static void a_peer_ties_this_rank(void)
{
    atomic_store(&peer->launched, 6), atomic_store(&peer->begun, 6), atomic_store(&peer->has_hp, 1);
    atomic_store(&peer->tied, 1);
    CHECK(run() == 7 && atomic_load(&own->launched) == 7 && atomic_load(&own->begun) == 7);
    CHECK(!orion_collective_peer_launched(process, gpu, 7));
    atomic_store(&peer->launched, 7), atomic_store(&peer->begun, 7);
    CHECK(orion_collective_peer_launched(process, gpu, 7));
}

static void the_hp_of_a_peer_closes_for_this_rank(void)
{
    uint32_t number = orion_collective_begin(process, gpu);
    CHECK(!orion_collective_held(process, gpu, number));
    atomic_store(&peer->closed_until_ms, in_ms(ORION_RANK_LEASE_MS));
    CHECK(orion_collective_held(process, gpu, number));
    CHECK(orion_collective_update(process) && atomic_load(&page->allowed) == 7);
    CHECK(orion_collective_blocked_by(process, gpu) == gpu); /* no GPU of this process has a busy hp */
    atomic_store(&peer->begun, 8);                           /* the peer has begun it, so this rank must, too */
    CHECK(!orion_collective_held(process, gpu, number));
    CHECK(orion_collective_update(process) && atomic_load(&page->allowed) == 8);
    go_unarmed(number);
    CHECK(orion_collective_blocked_by(process, gpu) == NULL);
    atomic_store(&peer->closed_until_ms, 0);
    CHECK(!orion_collective_update(process) && orion_ranks_is_behind(8, atomic_load(&page->allowed)));
}

static void no_word_of_a_peer_holds_for_longer_than_a_lease(void)
{
    uint32_t number = orion_collective_begin(process, gpu);
    const uint32_t nonsense[] = {in_ms(-1), in_ms(-1000000), in_ms(10000), in_ms(INT32_MAX), in_ms(INT32_MIN)};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        atomic_store(&peer->closed_until_ms, nonsense[i]);
        CHECK(!orion_collective_held(process, gpu, number));
    }
    uint64_t began = orion_now();
    atomic_store(&peer->closed_until_ms, in_ms(20));
    orion_collective_wait(process, gpu, number);
    CHECK(orion_now() - began >= 18 * ORION_MILLISECOND);
    go_unarmed(number);
    atomic_store(&peer->closed_until_ms, 0), atomic_store(&peer->begun, number);
}

static void this_rank_tells_its_peers(void)
{
    set_hp(true);
    orion_stops_update(process);
    uint32_t left = atomic_load(&own->closed_until_ms) - in_ms(0);
    CHECK(left > 0 && left <= ORION_RANK_LEASE_MS);
    set_hp(false);
    orion_stops_update(process);
    CHECK(atomic_load(&own->closed_until_ms) == 0);
}

static void a_context_that_ends_opens_for_all(void)
{
    uint32_t number = orion_collective_begin(process, gpu);
    set_hp(true);
    orion_forbid_touch(process);
    orion_stops_open(process);
    CHECK(atomic_load(&own->ending_until_ms) != 0);
    orion_allow_touch(process);
    orion_stops_update(process);
    CHECK(atomic_load(&own->ending_until_ms) == 0 && atomic_load(&page->allowed) == number - 1);
    atomic_store(&peer->ending_until_ms, in_ms(ORION_RANK_LEASE_MS));
    atomic_store(&page->allowed, number + 1000);
    CHECK(!orion_stops_update(process) && atomic_load(&page->allowed) == number + 1000);
    atomic_store(&peer->ending_until_ms, 0);
    set_hp(false);
    orion_stops_update(process);
    go_unarmed(number);
    atomic_store(&peer->begun, number);
}

/* A collective of this rank waits in its stream, and nobody else is left to open the word. */
static void a_peer_that_leaves_while_it_is_closed_leaves_the_word_open(void)
{
    uint32_t number = orion_collective_begin(process, gpu);
    struct orion_rank before = *peer;
    for (unsigned own_too = 0; own_too < 2; own_too++) {
        atomic_store(&peer->closed_until_ms, in_ms(ORION_RANK_LEASE_MS));
        orion_stops_update(process);
        CHECK(orion_ranks_is_behind(atomic_load(&page->allowed), number));
        memset(peer, 0, sizeof *peer);
        if (own_too) atomic_store(&own->tied, 0); /* the agent has taken this client for one that has left */
        orion_stops_update(process);
        CHECK(!orion_ranks_is_behind(atomic_load(&page->allowed), number));
        *peer = before, atomic_store(&own->tied, 1);
    }
    go_unarmed(number);
    atomic_store(&peer->begun, number);
}

/* The agent clears the words of a client that has left; it may also have cleared this rank's, which has returned. */
static void cleared_words_untie(void)
{
    memset(peer, 0, sizeof *peer);
    uint32_t launched = atomic_load(&own->launched);
    CHECK(run() == 0 && atomic_load(&own->launched) == launched + 1);
    memset(own, 0, sizeof *own);
    CHECK(run() == 0 && atomic_load(&own->tied) == 1 && atomic_load(&own->launched) == launched + 2);
}

/* A rank that starts again beside peers that have run long gets their number. */
static void a_new_rank_gets_the_number_of_its_peers(void)
{
    memset(own, 0, sizeof *own);
    atomic_store(&peer->launched, 5000), atomic_store(&peer->begun, 5000), atomic_store(&peer->tied, 1);
    CHECK(run() == 5000);
}

static void a_page_full_of_nonsense_does_no_harm(void)
{
    for (unsigned byte = 0; byte < 256; byte += 17) {
        memset((char *)page + sizeof page->header, (int)byte, sizeof *page - sizeof page->header);
        uint32_t number = run();
        orion_collective_wait(process, gpu, number);
        orion_stops_update(process);
        orion_stops_open(process);
        orion_collective_blocked_by(process, gpu);
    }
}

int main(void)
{
    begin();
    only_a_page_of_a_job_is_mapped();
    the_first_page_stays();
    a_peer_ties_this_rank();
    the_hp_of_a_peer_closes_for_this_rank();
    no_word_of_a_peer_holds_for_longer_than_a_lease();
    this_rank_tells_its_peers();
    a_context_that_ends_opens_for_all();
    a_peer_that_leaves_while_it_is_closed_leaves_the_word_open();
    cleared_words_untie();
    a_new_rank_gets_the_number_of_its_peers();
    a_page_full_of_nonsense_does_no_harm();
    puts("ranks: ok");
    return 0;
}
