/* The end of a thread that has used its per-thread default stream. The driver frees the stream then, in a destructor of a pthread key, and
 * reads memory that is gone while the process is away (process/absence.h). So such a thread waits first until the process is back, and the
 * process does not leave until the thread has ended. The stream's record ends then, too: many threads would otherwise use up the records.
 * So does a capture of the stream, which would otherwise count as open for good.
 *
 * The C library runs the destructors of C++ thread_local objects before those of keys. One of the former begins the presence. A key's
 * destructor ends it in the last round of destructors, when the driver's has run.
 *
 * Not seen: a driver that would use a thread_local object (550 and 580 import only keys), and C libraries without such objects. */
#ifndef ORION_THREAD_ENDS_H
#define ORION_THREAD_ENDS_H

struct orion_process;

/* Called before the thread's first use of its stream. */
void orion_thread_ends_watch(struct orion_process *process);

#endif
