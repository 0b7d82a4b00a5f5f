/* A stub of a function, so that programs link and load. It returns CUDA_ERROR_NOT_SUPPORTED and does not read its
 * arguments. The stub is weak, so a handwritten function anywhere in the library replaces it. */
#ifndef ORION_SIM_STUB_H
#define ORION_SIM_STUB_H

#define SIM_STUB(name) \
    __attribute__((weak, visibility("default"))) int name(void) { return 801; /* CUDA_ERROR_NOT_SUPPORTED */ }

#endif
