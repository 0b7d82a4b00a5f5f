/* Images: the contents of a module or a library. */
#ifndef ORION_SIM_IMAGE_H
#define ORION_SIM_IMAGE_H

#include "sim.h"

struct sim_image {
    unsigned count;
    struct CUmod_st *module;
    struct sim_kernel **kernels;
};

/* Parse a text image (docs/simulated-gpu.md has the grammar). */
CUresult sim_image_parse(const char *text, struct sim_image **image);
void sim_image_free(struct sim_image *image);
struct sim_kernel *sim_image_find(const struct sim_image *image, const char *name);

#endif
