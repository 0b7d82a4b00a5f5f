/* Linked only into the driver without checkpoints, one as before CUDA 12.8, which tests use: neither dlsym nor
 * cuGetProcAddress finds the functions. */
#include <stdbool.h>

#include "../proc_address.h"

const bool sim_without_checkpoint = true;
