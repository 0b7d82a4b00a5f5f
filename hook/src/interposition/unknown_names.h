/* Which names of the driver's functions the hook should know but does not. */
#ifndef ORION_UNKNOWN_NAMES_H
#define ORION_UNKNOWN_NAMES_H

#include <stdbool.h>

/* Whether the name looks like a function of the driver that launches, copies, allocates or changes graphs, and no cuda.h
 * of this hook declares it. Functions that only read something do not count. The caller has looked the name up in
 * orion_cuda. */
bool orion_is_unknown_name(const char *name);

#endif
