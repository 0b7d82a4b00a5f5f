/* The identity of each simulated GPU; the same in every process. */
#ifndef ORION_SIM_DEVICE_IDENTITY_H
#define ORION_SIM_DEVICE_IDENTITY_H

#define SIM_GPU_NAME "Orion Simulated GPU"
#define SIM_UUID_TEXT 41 /* "GPU-", 36 characters, NUL */

/* `gpu` is a GPU of the machine, not a device of this process. */
void sim_gpu_uuid(int gpu, unsigned char uuid[16]); /* derived from the machine's seed */
void sim_gpu_uuid_text(int gpu, char text[SIM_UUID_TEXT]);

#endif
