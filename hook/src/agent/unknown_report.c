#include "agent/unknown_report.h"

#include <string.h>
#include <sys/socket.h>

#include "orion/join.h"
#include "process/gpu.h"
#include "process/process.h"

void orion_unknown_report(struct orion_process *process, struct orion_gpu *gpu, int socket, uint32_t *reported)
{
    static const char beginning[] = "looks up functions that this hook does not manage: ";
    struct orion_report_message message = {.head = {ORION_MESSAGE_MAGIC, ORION_REPORT}, .code = ORION_REPORT_UNKNOWN_FUNCTION};
    uint32_t count = atomic_load(&process->unknown.count);
    if (count == *reported) return;
    size_t begun = sizeof beginning - 1;
    memcpy(message.text, beginning, begun);
    orion_unknown_names(&process->unknown, message.text + begun, sizeof message.text - begun);
    if (send(socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof message) return;
    *reported = count;
    atomic_store_explicit(&gpu->record->unknown_functions, count, memory_order_relaxed);
}
