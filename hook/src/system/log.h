/* The log of the scheduler of threads, for programmers, on standard error. ORION_LOG_LEVEL is 1 (errors), 2 (warnings),
 * 3 (events) or 4 (every stream and wait). Processes that share a GPU with others do not use it; they use report.h. */
#ifndef ORION_LOG_H
#define ORION_LOG_H

#include <stdbool.h>

enum orion_log_level { ORION_LOG_ERROR = 1, ORION_LOG_WARNING = 2, ORION_LOG_INFO = 3, ORION_LOG_DEBUG = 4 };

/* Applies ORION_LOG_LEVEL. Called when the scheduler starts. */
void orion_log_begin(void);

bool orion_log_wants(enum orion_log_level level);
__attribute__((format(printf, 2, 3))) void orion_log(enum orion_log_level level, const char *format, ...);

#endif
