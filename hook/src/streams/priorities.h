/* Priorities of work: hp's are higher than be's on a GPU where work of several processes runs together. */
#ifndef ORION_PRIORITIES_H
#define ORION_PRIORITIES_H

#include <cuda.h>
#include <stdbool.h>

#include "streams/stream_name.h"

int orion_stream_priority(int priority); /* the priority of a new stream for which the program asked for `priority` */

/* After the driver has made a stream in a green context. That may be of another GPU than the current context, which the driver says of a
 * stream only. True: the stream needs another priority, which is now in `priority`, and has been destroyed. */
bool orion_green_stream_again(CUstream stream, int *priority);

/* A launch whose attributes set a priority, and the same launch with the priority that it gets. `changed` is for the result. After the
 * launch, the program's attributes get what the driver has answered in the changed ones. */
#define ORION_ATTRIBUTES 32u /* CUDA has fewer; a launch with more keeps what it asks for */
struct orion_changed_launch {
    CUlaunchAttribute *answered; /* the program's; NULL: the driver answers nothing */
    CUlaunchConfig config;
    CUlaunchAttribute attributes[ORION_ATTRIBUTES];
};
const CUlaunchConfig *orion_launch_with_priority(const CUlaunchConfig *config, bool per_thread,
                                                 struct orion_changed_launch *changed);
void orion_launch_answers(const struct orion_changed_launch *changed);

/* The value of an attribute that the program sets for a stream, or for a kernel node. `changed` is for the result. */
const CUlaunchAttributeValue *orion_attribute_of_stream(struct orion_stream_name stream, CUlaunchAttributeID id,
                                                        const CUlaunchAttributeValue *value, CUlaunchAttributeValue *changed);
const CUlaunchAttributeValue *orion_attribute_of_node(CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
                                                      CUlaunchAttributeValue *changed);
void orion_attributes_copied(struct orion_stream_name stream); /* after the driver has copied those of another stream */

#endif
