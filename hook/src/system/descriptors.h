/* The descriptor table of a thread of the hook. Threads share the process's table unless one leaves it. */
#ifndef ORION_DESCRIPTORS_H
#define ORION_DESCRIPTORS_H

/* Gives this thread an empty descriptor table of its own. If the kernel or a filter of system calls does not allow that, the table stays
 * shared. Copies of the program's descriptors would keep its pipes and sockets open after the program has closed them. */
void orion_descriptors_leave(void);

#endif
