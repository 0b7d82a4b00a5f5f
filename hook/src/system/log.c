#include "system/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "system/environment.h"
#include "system/standard_error.h"

#define LINE 256

static _Atomic int chosen = ORION_LOG_WARNING;

void orion_log_begin(void)
{
    const char *text = orion_environment()->log_level;
    if (text[0] < '1' || text[0] > '4' || text[1] != '\0') return;
    atomic_store_explicit(&chosen, text[0] - '0', memory_order_relaxed);
}

bool orion_log_wants(enum orion_log_level level) { return (int)level <= atomic_load_explicit(&chosen, memory_order_relaxed); }

void orion_log(enum orion_log_level level, const char *format, ...)
{
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    if (!orion_log_wants(level)) return;
    int kept = errno;
    char line[LINE]; /* one write for the whole line, so that lines of several threads do not mix */
    int length = snprintf(line, sizeof line, "orion %s: ", names[level]);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + length, sizeof line - 1 - (size_t)length, format, arguments);
    va_end(arguments);
    length = more < 0 ? length : length + more;
    if (length > LINE - 2) length = LINE - 2;
    line[length] = '\n';
    if (!orion_is_standard_error(STDERR_FILENO) || write(STDERR_FILENO, line, (size_t)length + 1) < 0) {} /* the line is lost */
    errno = kept;
}
