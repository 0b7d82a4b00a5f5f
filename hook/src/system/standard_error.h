/* Where the hook may write a sentence.
 *
 * A program may close descriptor 2 and open a file, a device or a connection, which then becomes descriptor 2. A sentence would
 * damage the program's data. So the hook writes to descriptor 2 if it leads where it led when the process started. Many programs
 * redirect their own standard error later, mostly to a log file. So the hook also writes to a terminal, to a pipe, and to a
 * file that was opened to append to. It does not write to another file, nor to a socket: that may be anything.
 *
 * Rejected: a copy of descriptor 2 from the start. It would keep a pipe open that the program has closed. */
#ifndef ORION_STANDARD_ERROR_H
#define ORION_STANDARD_ERROR_H

#include <stdbool.h>

/* Whether `fd`, which is descriptor 2 or a copy of it, is for sentences. */
bool orion_is_standard_error(int fd);

#endif
