/* Admission: the wait of a be launch until the GPU's policy lets it through, and where and how it runs then.
 *
 * One launch at a time: enter() tries by the rules of the policy in force until it may go. Everything that it waits for is
 * another file's: the stop that the launch has (stop.h), the window, the baselines of the bench library. Here stands the
 * order in which they are asked. */
#ifndef ORION_ADMISSION_H
#define ORION_ADMISSION_H

struct orion_stream_record;
struct orion_process;
struct orion_work;

/* Flags of a be launch, in orion_work.flags; an hp launch holds an enum orion_busy_change there. */
enum { ORION_ADMITTED_TIMED = 1u << 8, ORION_ADMITTED_PARTITIONED = 1u << 9 };

/* Returns when the launch may be handed to the driver, with work->expected_ns, flags and elsewhere set; at once, and with
 * nothing set, if the policy is changed meanwhile to one that admits everybody. */
void orion_admit(struct orion_process *process, struct orion_stream_record *stream_record, struct orion_work *work);

#endif
