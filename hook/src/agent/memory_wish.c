#include "agent/memory_wish.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent_socket.h"
#include "process/gpu.h"
#include "system/system.h"

#define ANSWER_NS (250 * ORION_MILLISECOND)

static enum orion_credit_answer answer_on(int fd)
{
    struct orion_credit credit = {0};
    uint64_t now = orion_now(), until = now + ANSWER_NS;
    for (; now < until; now = orion_now()) {
        struct pollfd answer = {.fd = fd, .events = POLLIN};
        int ready = poll(&answer, 1, (int)((until - now) / ORION_MILLISECOND) + 1);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) break;
        ssize_t got = recv(fd, &credit, sizeof credit, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got == (ssize_t)sizeof credit && credit.head.type == ORION_CREDIT) return (enum orion_credit_answer)credit.answer;
        break;
    }
    return ORION_NO_ANSWER;
}

enum orion_credit_answer orion_memory_ask(const struct orion_gpu *gpu, enum orion_message_type type, uint64_t bytes)
{
    struct orion_memory_wish message = {
        .head = {ORION_MESSAGE_MAGIC, type},
        .client_index = gpu->record->client_index,
        .generation = gpu->record->generation,
        .bytes = bytes,
    };
    int kept = errno;
    enum orion_credit_answer answer = ORION_NO_ANSWER;
    int fd = orion_agent_connect(gpu->uuid);
    if (fd >= 0) {
        if (send(fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof message) answer = answer_on(fd);
        close(fd);
    }
    errno = kept;
    return answer;
}
