/* What can be found out about work before it is measured: SMs that a kernel fills, what a profile says of it, its name. */
#ifndef ORION_FACTS_H
#define ORION_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct orion_launch;
struct orion_process;

/* Finds out, once an identity, what is not known of it; orion_kernel_facts says true from then on. Asks the driver, so it
 * is for launches that are sampled or whose facts are missing, not for every one. True: there is a duration now that was
 * not there. */
bool orion_kernel_note(struct orion_process *process, uint64_t identity, const struct orion_launch *launch);

/* What people call work of that identity: a kernel's name, of a graph its largest kernel's. False: no name is known. */
bool orion_kernel_name(struct orion_process *process, uint64_t identity, char *text, size_t size);

#endif
