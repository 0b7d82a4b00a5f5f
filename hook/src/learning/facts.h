/* What the hook finds out about work before it measures the work: how many SMs a kernel fills, whether its
 * blocks can all run at once, the kernel's name, and the kernel's row in a profile. */
#ifndef ORION_FACTS_H
#define ORION_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct orion_launch;
struct orion_process;

/* Finds out the facts of an identity. Later calls for the same identity do nothing. After the first call
 * orion_kernel_facts returns true. This calls the driver, so call it only for launches that are timed or whose facts
 * are missing. True: the identity now has an expected duration, and had none before. */
bool orion_kernel_note(struct orion_process *process, uint64_t identity, const struct orion_launch *launch);

/* The name of the work, for users: the kernel's name, or the name of a graph's largest kernel. False: no name is
 * known. */
bool orion_kernel_name(struct orion_process *process, uint64_t identity, char *text, size_t size);

#endif
