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
#define PAGES 4u /* of a WELCOME, in the order of enum orion_gpu_page */

static int make_page(uint32_t kind, const char *gpu)
{
    struct orion_page_header header = {ORION_PAGE_MAGIC, ORION_LAYOUT_NEWEST, kind, {0}};
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    memcpy(header.gpu, gpu, sizeof header.gpu);
    CHECK(fd >= 0 && ftruncate(fd, ORION_PAGE_SIZE) == 0 && pwrite(fd, &header, sizeof header, 0) == sizeof header);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

static void send_welcome(int socket, const int fds[PAGES])
{
    struct orion_welcome welcome = {.head = {ORION_MESSAGE_MAGIC, ORION_WELCOME},
                                    .layout = ORION_LAYOUT_NEWEST,
                                    .role = ORION_ROLE_BE};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(PAGES * sizeof(int))];
    } control = {.header = {CMSG_LEN(PAGES * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {&welcome, sizeof welcome};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), fds, PAGES * sizeof(int));
    CHECK(sendmsg(socket, &message, 0) == sizeof welcome);
}

static void a_client_is_ready_when_its_page_says_what_it_holds(void)
{
    struct orion_gpu *gpu = fake_gpu(ORION_ROLE_NONE);
    struct orion_membership membership;
    struct orion_message ready;
    struct orion_wish wish;
    int sockets[2], fds[PAGES];
    CHECK(orion_memory_reserve(0, 300 * MIB, ORION_MEMORY_RESIDENT, &wish) == ORION_RESERVED);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    for (uint32_t i = 0; i < PAGES; i++) fds[i] = make_page(ORION_PAGE_POLICY + i, gpu->uuid);
    orion_membership_begin(&membership, orion_the_process, gpu);
    membership.socket = sockets[0];
    membership.answer_by_ns = UINT64_MAX;
    send_welcome(sockets[1], fds);
    orion_membership_poll(&membership, orion_now());
    CHECK(recv(sockets[1], &ready, sizeof ready, MSG_DONTWAIT) == sizeof ready && ready.type == ORION_READY);
    const struct orion_record_page *record = mmap(NULL, ORION_PAGE_SIZE, PROT_READ, MAP_SHARED, fds[ORION_GPU_RECORD], 0);
    CHECK(record != MAP_FAILED && atomic_load(&record->memory_bytes) == 300 * MIB);
}

int main(void)
{
    a_client_is_ready_when_its_page_says_what_it_holds();
    puts("membership: ok");
    return 0;
}
