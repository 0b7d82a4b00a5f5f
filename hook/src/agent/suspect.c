#include "agent/suspect.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "system.h"
#include "agent/agent_socket.h"
#include "orion/join.h"

#define ASK_AGAIN_NS (4 * ORION_MILLISECOND)

void orion_suspect_tell(struct orion_board *board, uint32_t place, uint64_t now)
{
    if (board->client != 0) return; /* one process: it would not run to ask */
    uint64_t asked = atomic_load(&board->suspected_ns[place]);
    if (now < asked + ASK_AGAIN_NS || !atomic_compare_exchange_strong(&board->suspected_ns[place], &asked, now)) return;
    int kept = errno;
    int fd = orion_agent_connect(board->uuid);
    if (fd >= 0) {
        struct orion_suspect suspect = {
            .head = {ORION_MESSAGE_MAGIC, ORION_SUSPECT},
            .place = place,
            .generation = atomic_load(&board->hp_generation[place]),
        };
        send(fd, &suspect, sizeof suspect, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
    errno = kept;
}
