//@arch sm_90a
// setmaxnreg: registers given up by one warpgroup and taken by another.
#include "instructions.cuh"

//@ setmaxnreg | setmaxnreg/registers/barrier/deadlock | 1, 384 | f32[384], f32[384]=0 | 40 + 240 + 240 registers a thread, where the launch gave 3 × 168: the second warpgroup waits for ever
extern "C" __global__ void __launch_bounds__(384, 1) registers_beyond_pool(const float* x, float* y) {
    if (WARP < 4) {
        give<40>();  //-!
        give<24>();  //+
    } else {
        take<240>();  //!
    }
    y[T] = x[T];
}

//@ setmaxnreg | setmaxnreg/registers/barrier/deadlock | 1, 256 | f32[256], f32[256]=0 | a warpgroup takes registers that no other gives up
extern "C" __global__ void __launch_bounds__(256, 2) registers_not_given(const float* x, float* y) {
    if (WARP < 4) {
        give<40>();  //+
    } else {
        take<208>();  //!
    }
    y[T] = x[T];
}

//@ setmaxnreg | setmaxnreg/registers/warpgroup/divergence/barrier/deadlock | 1, 256 | f32[256], f32[256]=0 | one warp of a warpgroup gives up its registers
extern "C" __global__ void __launch_bounds__(256, 1) registers_of_one_warp(const float* x, float* y) {
    if (WARP == 0)  //-
    if (WARP < 4)  //+
        give<40>();  //!
    y[T] = x[T];
}

//@ setmaxnreg | setmaxnreg/registers/warpgroup/divergence/barrier/deadlock | 1, 256 | f32[256], f32[256]=0 | one lane, the producer, gives up registers
extern "C" __global__ void __launch_bounds__(256, 1) registers_of_one_lane(const float* x, float* y) {
    if (T == 0)  //-
    if (WARP < 4)  //+
        give<40>();  //!
    y[T] = x[T];
}

//@ setmaxnreg | setmaxnreg/registers/warpgroup/divergence/barrier/deadlock | 1, 256 | f32[256], f32[256]=0 | two warps of a warpgroup ask for 40, two for 24
extern "C" __global__ void __launch_bounds__(256, 1) registers_disagree(const float* x, float* y) {
    if (WARP < 2) give<40>();  //-!
    else if (WARP < 4) give<24>();  //-!
    if (WARP < 4) give<24>();  //+
    y[T] = x[T];
}

//@ setmaxnreg | advice setmaxnreg/registers/launch | 1, 256 | f32[256], f32[256]=0 | no bound of registers is known when the kernel is compiled: setmaxnreg is ignored
extern "C" __global__ void registers_without_bound(const float* x, float* y) {  //-!
extern "C" __global__ void __launch_bounds__(256, 1) registers_without_bound(const float* x, float* y) {  //+
    if (WARP < 4) give<40>();  //!
    else take<232>();  //!
    y[T] = x[T];
}

//@ setmaxnreg | advice setmaxnreg/registers/barrier/deadlock | 1, 256 | f32[256], f32[256]=0 | inc to fewer registers than a thread has: ptxas starts all with 96
extern "C" __global__ void __launch_bounds__(256, 2) registers_taken_downwards(const float* x, float* y) {
    if (WARP < 4) give<40>();
    else {
        take<96>();  //-!
        take<208>();  //+
    }
    y[T] = x[T];
}

//@ setmaxnreg | setmaxnreg/registers/barrier/deadlock | 1, 512 | f32[512], f32[512]=0 | three consumers of 160 beside a producer of 56, where the launch gave 4 × 128
extern "C" __global__ void __launch_bounds__(512, 1) registers_of_four_groups(const float* x, float* y) {
    if (WARP < 4) {
        give<56>();  //-!
        give<32>();  //+
    } else {
        take<160>();  //!
    }
    y[T] = x[T];
}

//@ setmaxnreg | setmaxnreg | 1, 384 | f32[384], f32[384]=0 | the producer has 168 registers, and inc to 40 gives none of them up: the others wait for ever
extern "C" __global__ void __launch_bounds__(384, 1) registers_given_by_inc(const float* x, float* y) {
    if (WARP < 4) {
        take<40>();  //-
        give<40>();  //+
    } else {
        take<232>();  //!
    }
    y[T] = x[T];
}
