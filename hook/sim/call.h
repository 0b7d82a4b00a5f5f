/* Every CUDA call begins and ends here, so that a checkpoint can stop them all: the calls that have begun return, and
 * each later one waits in the driver (checkpoint.c). Not part of this are functions that only tell facts of the
 * library, such as cuGetProcAddress and cuGetErrorName, and the stubs. */
#ifndef ORION_SIM_CALL_H
#define ORION_SIM_CALL_H

#include <stdbool.h>
#include <stdint.h>

/* Begin a call of this thread. Waits while calls are stopped, for ever if nobody lets them go on. A call inside a call,
 * a forked child and a host function do not wait. */
void sim_call_begin(void);
void sim_call_end(const char *unused);

/* From here to the end of the block, a call is in progress. */
#define SIM_CALL() SIM_CALL_AS(__COUNTER__)
#define SIM_CALL_AS(number) SIM_CALL_NAMED(number)
#define SIM_CALL_NAMED(number) \
    __attribute__((cleanup(sim_call_end))) char in_call_##number##_; \
    sim_call_begin()

/* Stop new calls, and wait until those in progress have returned. False: that took longer than `timeout_ns` (0: waits
 * without an end); then calls go on as before. */
bool sim_calls_stop(uint64_t timeout_ns);
void sim_calls_continue(void);

#endif
