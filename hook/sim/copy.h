/* Copies and memsets, queued or captured. */
#ifndef ORION_SIM_COPY_H
#define ORION_SIM_COPY_H

#include "sim.h"

enum sim_engine sim_engine_for(const void *target, const void *source);

/* Copies `size` contiguous bytes. */
CUresult sim_copy(struct CUstream_st *stream, void *target, const void *source, size_t size);
CUresult sim_capture_copy(struct CUstream_st *stream, void *target, const void *source, size_t size);

/* Copies a box of rows and layers. */
CUresult sim_copy_box(struct CUstream_st *stream, const CUDA_MEMCPY3D *box);
CUresult sim_box_move(const CUDA_MEMCPY3D *box); /* moves the bytes only */
enum sim_engine sim_box_engine(const CUDA_MEMCPY3D *box);
CUresult sim_capture_box(struct CUstream_st *stream, const CUDA_MEMCPY3D *box);

CUresult sim_memset(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set);
void sim_memset_move(const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sim_capture_memset(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set);

#endif
