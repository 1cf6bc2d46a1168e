// Global memory between blocks: flags, fences, scopes, the last block, tiles that overlap.
#define T threadIdx.x
#define B blockIdx.x

//@ global races | race | 2, 32 | f32[32], f32[64]=0, i32[1]=0 | the flag may be seen before the data
extern "C" __global__ void flag_without_fence(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[T] = x[T] * 2;  //!
        __syncwarp();
        if (T == 0) {
            __threadfence();  //+
            atomicExch(flag, 1);
        }
    } else {
        if (T == 0) {
            while (atomicAdd(flag, 0) == 0) {}
            __threadfence();
        }
        __syncwarp();
        y[32 + T] = y[T];  //!
    }
}

//@ global races | advice race | 2, 32 | f32[1], f32[2]=0, i32[1]=0 | the reader has no fence between flag and data
extern "C" __global__ void reader_without_fence(const float* x, float* y, int* flag) {
    if (T != 0) return;
    if (B == 0) {
        y[0] = x[0];  //!
        __threadfence();
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence();  //+
        y[1] = y[0];  //!
    }
}

//@ global races | race/endless/deadlock | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | the flag is stored and loaded as plain data
extern "C" __global__ void plain_flag(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[0] = x[0] + 1;  //!
        __threadfence();
        *flag = 1;  //-!
        *(volatile int*)flag = 1;  //+
    } else {
        while (*flag == 0) {}  //-!
        while (*(volatile int*)flag == 0) {}  //+
        __threadfence();
        y[1] = y[0];  //!
    }
}

//@ scopes | race | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | the writer's fence reaches its own block only
extern "C" __global__ void block_fence_for_device(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[0] = x[0];  //!
        __threadfence_block();  //-!
        __threadfence();  //+
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence();
        y[1] = y[0];  //!
    }
}

//@ scopes | race | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | the reader's fence reaches its own block only
extern "C" __global__ void reader_block_fence(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[0] = x[0];  //!
        __threadfence();
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence_block();  //-!
        __threadfence();  //+
        y[1] = y[0];  //!
    }
}

//@ scopes | race | 4, 32 | i32[1]=0 | counts of different blocks are lost: _block atomics are atomic within a block
extern "C" __global__ void block_atomic_between_blocks(int* count) {
    atomicAdd_block(count, 1);  //-!
    atomicAdd(count, 1);  //+
}

//@ scopes | race/endless/deadlock | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | .wt and .cv are cache hints, not strong accesses
extern "C" __global__ void cache_hints_as_strong(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[0] = x[0];  //!
        __threadfence();
        __stwt(flag, 1);  //-!
        *(volatile int*)flag = 1;  //+
    } else {
        while (__ldcv(flag) == 0) {}  //-!
        while (*(volatile int*)flag == 0) {}  //+
        __threadfence();
        y[1] = y[0];  //!
    }
}

//@ scopes | race | 2, 1 | f32[1], f32[2]=0, i32[1]=0 | the flag is released at device scope but polled at block scope
extern "C" __global__ void acquire_block_scope(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[0] = x[0];  //!
        asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(flag) : "memory");  //!
    } else {
        int v;
        do {
            asm volatile("ld.acquire.cta.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");  //-!
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");  //+
        } while (v == 0);
        y[1] = y[0];  //!
    }
}

//@ scopes | race | 4, 32 | f32[128], f32[5]=0, u32[1]=0 | the ticket is drawn at block scope: several blocks are last, or none
extern "C" __global__ void ticket_block_scope(const float* x, float* y, unsigned* tickets) {
    float v = x[B * 32 + T];
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    if (T == 0) {
        y[B] = v;  //!
        __threadfence();
        unsigned ticket = atomicInc_block(tickets, gridDim.x);  //-!
        unsigned ticket = atomicInc(tickets, gridDim.x);  //+
        if (ticket == gridDim.x - 1) {
            __threadfence();
            float sum = 0;
            for (int i = 0; i < gridDim.x; i++) sum += y[i];  //!
            y[4] = sum;
        }
    }
}

//@ global races | race | 4, 32 | f32[128], f32[5]=0, u32[1]=0 | the last block may read partial sums that are not there yet
extern "C" __global__ void last_block_no_fence(const float* x, float* y, unsigned* tickets) {
    float v = x[B * 32 + T];
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    if (T == 0) {
        y[B] = v;  //!
        __threadfence();  //+
        bool last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;
        __threadfence();
        if (last) y[4] = y[0] + y[1] + y[2] + y[3];  //!
    }
}

//@ global races | race | 4, 64 | f32[256], f32[257]=0, u32[1]=0 | thread 0 draws the ticket before the other warp has stored its part
extern "C" __global__ void ticket_before_barrier(const float* x, float* y, unsigned* tickets) {
    __shared__ bool last;
    y[B * 64 + T] = x[B * 64 + T] * 2;  //!
    __threadfence();
    __syncthreads();  //+
    if (T == 0) last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;
    __syncthreads();
    if (last) {
        __threadfence();
        if (T == 0) {
            float sum = 0;
            for (int i = 0; i < 256; i++) sum += y[i];  //!
            y[256] = sum;
        }
    }
}

//@ global races | race | 4, 64 | f32[256], f32[5]=0, u32[1]=0 | the shared flag "am I last" is read with no barrier
extern "C" __global__ void last_flag_no_barrier(const float* x, float* y, unsigned* tickets) {
    __shared__ bool last;
    if (T == 0) {
        y[B] = x[B];
        __threadfence();
        last = false;
    }
    __syncthreads();
    if (T == 0) last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;  //!
    __syncthreads();  //+
    if (last && T == 32) {  //!
        __threadfence();
        y[4] = y[0] + y[1] + y[2] + y[3];
    }
}

//@ global races | advice race | 4, 32 | f32[128], f32[5]=0, u32[1]=0 | the last block reads by plain loads with no fence after its ticket: a stale line of L1 is possible
extern "C" __global__ void last_block_plain_loads(const float* x, float* y, unsigned* tickets) {
    __shared__ bool last;
    if (T == 0) {
        y[B] = x[B * 32];  //!
        __threadfence();
        last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;
        __threadfence();  //+
    }
    __syncthreads();
    if (last && T == 0) {
        float sum = 0;
        for (int i = 0; i < 4; i++) sum += y[i];  //!
        y[4] = sum;
    }
}

//@ global races | race | 2, 32 | f32[64] | each element becomes its neighbours' mean, in place, across blocks
extern "C" __global__ void jacobi_in_place(float* x) {
    int i = B * 32 + T;
    float left = i > 0 ? x[i - 1] : 0, right = i < 63 ? x[i + 1] : 0;  //-!
    float left = T > 0 ? x[i - 1] : 0, right = T < 31 ? x[i + 1] : 0;  //+
    __syncwarp();
    x[i] = (left + right) / 2;  //!
}

//@ global races | race | 2x2, 8x8 | f32[256] | a transpose in place: each block overwrites what another has not read
extern "C" __global__ void transpose_in_place(float* x) {
    int r = blockIdx.y * 8 + threadIdx.y, c = B * 8 + T;
    if (r >= c) return;  //+
    float v = x[r * 16 + c];  //!
    float w = x[c * 16 + r];  //+
    x[c * 16 + r] = v;  //!
    x[r * 16 + c] = w;  //+
}

//@ global races | race | 4, 32 | f32[128], f32[128]=0 | tiles that overlap by one element: blocks store different values there
extern "C" __global__ void tiles_overlap(const float* x, float* y) {
    int i = B * 31 + T;  //-
    int i = B * 32 + T;  //+
    y[i] = x[T] + B;  //!
}

//@ global races | race | 2, 64 | f32[256], f32[256]=1 | the grid-stride loop steps by the block: every block updates everything
extern "C" __global__ void stride_of_one_block(const float* x, float* y) {
    for (int i = B * 64 + T; i < 256; i += blockDim.x)  //-
    for (int i = B * 64 + T; i < 256; i += blockDim.x * gridDim.x)  //+
        y[i] += x[i];  //!
}

//@ global races | race | 4, 32 | f32[1]=0, f32[4]=0 | every block stores its own result to one place
extern "C" __global__ void one_result_for_all_blocks(float* y, float* z) {
    if (T == 0) y[0] = B * 1.5f;  //-!
    if (T == 0) z[B] = B * 1.5f;  //+
}

//@ global races | race | 2, 32 | f32[64], f32[64]=0 | a block reads what the other one writes in the same kernel
extern "C" __global__ void neighbour_block_result(const float* x, float* y) {
    int i = B * 32 + T;
    y[i] = x[i] * 3;  //!
    __syncthreads();
    if (T == 0 && B == 1) y[63] = y[0];  //-!
    if (T == 0 && B == 1) y[63] = y[32];  //+
}

__device__ unsigned arrived;

//@ global races | race | 2, 64 | f32[128], f32[128]=0, u32[1]=0 | a grid barrier by hand, where one thread arrives before its block has stored
extern "C" __global__ void grid_barrier_no_block_barrier(const float* x, float* y, unsigned* count) {
    y[B * 64 + T] = x[B * 64 + T];  //!
    __syncthreads();  //+
    if (T == 0) {
        __threadfence();
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    float v = y[(1 - B) * 64 + 63 - T];  //!
    if (v < 0) atomicAdd(&arrived, 1u);
}

//@ global races | race | 2, 64 | f32[128], f32[128]=0, u32[1]=0 | a grid barrier by hand, where the block goes on without its waiting thread
extern "C" __global__ void grid_barrier_no_block_wait(const float* x, float* y, unsigned* count) {
    y[B * 64 + T] = x[B * 64 + T];  //!
    __syncthreads();
    if (T == 0) {
        __threadfence();
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();  //+
    float v = y[(1 - B) * 64 + 63 - T];  //!
    if (v < 0) atomicAdd(&arrived, 1u);
}

//@ global races | race | 1, 64 | f32[64], f32[64]=0 | two warps of one block through global memory
extern "C" __global__ void block_global_exchange(const float* x, float* y) {
    y[T] = x[T];  //!
    __syncthreads();  //+
    float v = y[63 - T];  //!
    __syncthreads();
    y[T] = v + 1;
}

//@ global races | race | 1, 64 | f32[64], f32[64]=0, i32[1]=0 | a flag in one block: warps hand over data without a fence
extern "C" __global__ void warp_flag_no_fence(const float* x, float* y, int* flag) {
    __shared__ float s;
    if (T == 0) {
        s = x[5];  //!
        __threadfence_block();  //+
        atomicExch(flag, 1);
    }
    if (T == 32) {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence_block();
        y[0] = s;  //!
    }
}

//@ global races | race | 3, 32 | f32[96], f32[96]=0, i32[3]=0 | the last block waits for one block's flag and reads what another has written
extern "C" __global__ void flag_of_another_block(const float* x, float* y, int* flags) {
    y[B * 32 + T] = x[B * 32 + T] + 1;  //!
    __syncthreads();
    if (T == 0) { __threadfence(); atomicExch(flags + B, 1); }
    if (B == 2) {
        if (T == 0) {
            while (atomicAdd(flags + 1, 0) == 0) {}
            while (atomicAdd(flags, 0) == 0) {}  //+
            __threadfence();
        }
        __syncthreads();
        y[64 + T] += y[T];  //!
    }
}

//@ global races | race | 2, 64 | f32[64], f32[64]=0, i32[1]=0 | the flag tells of one warp's work, and the other warp's is read
extern "C" __global__ void flag_of_one_warp(const float* x, float* y, int* flag) {
    if (B == 0) {
        y[T] = x[T] * 2;  //!
        __syncthreads();  //+
        if (T == 32) { __threadfence(); atomicExch(flag, 1); }
    } else if (T == 0) {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence();
        y[0] += y[1];  //!
    }
}

//@ global races | - | 3, 32 | f32[32], f32[96]=0, i32[2]=0 | a block hands on what another has handed to it
extern "C" __global__ void handed_on_twice(const float* x, float* y, int* flags) {
    if (B > 0) {
        if (T == 0) { while (atomicAdd(flags + B - 1, 0) == 0) {} __threadfence(); }
        __syncthreads();
    }
    y[B * 32 + T] = B == 0 ? x[T] : B == 1 ? 1 : y[T];
    __syncthreads();
    if (T == 0 && B < 2) { __threadfence(); atomicExch(flags + B, 1); }
}

//@ warp order | race | 1, 96 | f32[96], f32[96]=0 | one warp's flag is read, and another warp's data
extern "C" __global__ void flag_of_another_warp(const float* x, float* y) {
    __shared__ float s[96];
    __shared__ int flags[3];
    if (T < 3) flags[T] = 0;
    __syncthreads();
    s[T] = x[T];  //!
    __syncwarp();
    if (T % 32 == 0) { __threadfence_block(); atomicExch(flags + T / 32, 1); }
    if (T >= 64) {
        while (atomicAdd(flags + 1, 0) == 0) {}
        while (atomicAdd(flags, 0) == 0) {}  //+
        __threadfence_block();
        y[T] = s[T - 64];  //!
    }
}
