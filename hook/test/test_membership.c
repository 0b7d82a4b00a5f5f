/* What an agent reads in a new client's pages once the client is ready. The test is the agent. */
#include "check.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/membership.h"
#include "fake_driver.h"
#include "memory/memory.h"
#include "orion/join.h"
#include "system/system.h"

#define MIB (UINT64_C(1) << 20)
#define PAGES 4u      /* of a WELCOME, in the order of enum orion_gpu_page */
#define PAGES_MOST 8u /* of any message */

static int make_page(uint32_t kind, const char *gpu)
{
    struct orion_page_header header = {ORION_PAGE_MAGIC, ORION_LAYOUT_NEWEST, kind, {0}};
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    memcpy(header.gpu, gpu, sizeof header.gpu);
    CHECK(fd >= 0 && ftruncate(fd, ORION_PAGE_SIZE) == 0 && pwrite(fd, &header, sizeof header, 0) == sizeof header);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

static void send_with(int socket, const void *body, size_t size, const int *fds, uint32_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(PAGES_MOST * sizeof(int))];
    } control = {.header = {CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {(void *)(uintptr_t)body, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) message.msg_control = &control, message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    CHECK(sendmsg(socket, &message, 0) == (ssize_t)size);
}

/* Plays an agent that answers a HELLO with new pages. fds: of these pages. */
static int begins(struct orion_membership *membership, struct orion_gpu *gpu, int fds[PAGES])
{
    const struct orion_welcome welcome = {.head = {ORION_MESSAGE_MAGIC, ORION_WELCOME},
                                          .layout = ORION_LAYOUT_NEWEST,
                                          .role = ORION_ROLE_BE};
    struct orion_message ready;
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    for (uint32_t i = 0; i < PAGES; i++) fds[i] = make_page(ORION_PAGE_POLICY + i, gpu->uuid);
    membership->socket = sockets[0];
    membership->welcome = false;
    membership->answer_by_ns = UINT64_MAX;
    send_with(sockets[1], &welcome, sizeof welcome, fds, PAGES);
    orion_membership_poll(membership, orion_now());
    CHECK(recv(sockets[1], &ready, sizeof ready, MSG_DONTWAIT) == sizeof ready && ready.type == ORION_READY);
    return sockets[1];
}

static void a_client_is_ready_when_its_page_says_what_it_holds(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_NONE);
    struct orion_membership membership;
    struct orion_wish wish;
    int fds[PAGES];
    CHECK(orion_memory_reserve(0, 300 * MIB, ORION_MEMORY_RESIDENT, &wish) == ORION_RESERVED);
    orion_membership_begin(&membership, orion_the_process, gpu);
    begins(&membership, gpu, fds);
    const struct orion_record_page *record = mmap(NULL, ORION_PAGE_SIZE, PROT_READ, MAP_SHARED, fds[ORION_GPU_RECORD], 0);
    CHECK(record != MAP_FAILED && atomic_load(&record->memory_bytes) == 300 * MIB);
}

static void lists_hp(struct orion_membership *membership, int socket, const uint32_t *places, uint32_t count)
{
    struct orion_neighbours message = {.head = {ORION_MESSAGE_MAGIC, ORION_NEIGHBOURS}, .count = count};
    int fds[PAGES_MOST] = {0};
    for (uint32_t i = 0; i < count; i++) {
        message.places[i] = (struct orion_client_index){places[i], 1};
        fds[i] = make_page(ORION_PAGE_BUSY, membership->gpu->uuid);
    }
    send_with(socket, &message, sizeof message, fds, count);
    orion_membership_poll(membership, orion_now());
}

/* An agent that has lost its state gives all clients new places. Nobody writes the pages of the old ones any more. */
static void only_the_new_agents_hp_counts(void)
{
    struct orion_gpu *gpu = orion_gpu_find(orion_the_process, 0);
    struct orion_membership membership;
    int fds[PAGES];
    orion_membership_begin(&membership, orion_the_process, gpu);
    int socket = begins(&membership, gpu, fds);
    lists_hp(&membership, socket, (uint32_t[]){0, 3}, 2);
    lists_hp(&membership, socket, (uint32_t[]){5}, 1);
    CHECK(orion_gpu_neighbours(gpu) == 3);
    socket = begins(&membership, gpu, fds);
    CHECK(orion_gpu_neighbours(gpu) == 3); /* until the agent has said who is hp */
    lists_hp(&membership, socket, (uint32_t[]){3, 4}, 2);
    CHECK(orion_gpu_neighbours(gpu) == 2);
    for (uint32_t i = 0; i < 2; i++) CHECK(gpu->hp_client_index[i] == 3 || gpu->hp_client_index[i] == 4);
    lists_hp(&membership, socket, (uint32_t[]){5}, 1);
    CHECK(orion_gpu_neighbours(gpu) == 3);
    socket = begins(&membership, gpu, fds);
    lists_hp(&membership, socket, NULL, 0);
    CHECK(orion_gpu_neighbours(gpu) == 0);
}

int main(void)
{
    a_client_is_ready_when_its_page_says_what_it_holds();
    only_the_new_agents_hp_counts();
    puts("membership: ok");
    return 0;
}
