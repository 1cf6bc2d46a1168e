// CUTLASS's example 86 asks for a minor version of 8 or more, also of CUDA 13, and does nothing without it.
#undef __CUDACC_VER_MINOR__
#define __CUDACC_VER_MINOR__ 8
