/* What the scheduler of threads tells its programmer on standard error, by ORION_LOG_LEVEL: 1 errors, 2 warnings, 3 what
 * happens, 4 every stream and wait. A process that shares its GPU with other processes hears the sentences of report.h. */
#ifndef ORION_LOG_H
#define ORION_LOG_H

#include <stdbool.h>

enum orion_log_level { ORION_LOG_ERROR = 1, ORION_LOG_WARNING = 2, ORION_LOG_INFO = 3, ORION_LOG_DEBUG = 4 };

/* Read once, when the scheduler starts. */
void orion_log_begin(void);

bool orion_log_wants(enum orion_log_level level);
__attribute__((format(printf, 2, 3))) void orion_log(enum orion_log_level level, const char *format, ...);

#endif
