// CUTLASS's example 86 asks for a minor version of 8 or more, also of CUDA 13, and does nothing without it.
// CUDA's own library compares that version with its compiler's: it is read before the number changes.
#include <cuda/std/cstdint>
#undef __CUDACC_VER_MINOR__
#define __CUDACC_VER_MINOR__ 8
