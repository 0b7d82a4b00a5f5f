/* What tells simulated GPUs apart; the same in every process. */
#ifndef ORION_SIM_DEVICE_IDENTITY_H
#define ORION_SIM_DEVICE_IDENTITY_H

#define SIM_GPU_NAME "Orion Simulated GPU"

void sim_gpu_uuid(int gpu, unsigned char uuid[16]); /* derived from the machine's seed */

#endif
