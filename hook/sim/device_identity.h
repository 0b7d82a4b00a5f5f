/* What tells simulated GPUs apart; the same in every process. */
#ifndef ORION_SIM_DEVICE_IDENTITY_H
#define ORION_SIM_DEVICE_IDENTITY_H

#define SIM_GPU_NAME "Orion Simulated GPU"
#define SIM_UUID_TEXT 41 /* "GPU-", 36 characters, NUL */

/* Of a GPU of the machine, not of a device of this process. */
void sim_gpu_uuid(int gpu, unsigned char uuid[16]); /* derived from the machine's seed */
void sim_gpu_uuid_text(int gpu, char text[SIM_UUID_TEXT]);

#endif
