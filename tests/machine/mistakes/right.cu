// Right kernels that look suspicious: each was once accused, or uses an idiom at the edge of the rules.
#include <cuda_fp16.h>
#define T threadIdx.x
#define B blockIdx.x
#define ALL 0xffffffffu

//@ calls | - | 1, 32 | i32[32]%6, i32[32]=0 | a recursive function reads its parameters after it has called itself
__device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
extern "C" __global__ void recursion(const int* x, int* y) {
    y[T] = fibonacci(x[T]);
}

//@ partial words | - | 1, 32 | i32[32], i32[64]=0 | a struct with padding is copied whole through shared memory
struct Padded { char tag; int value; };
extern "C" __global__ void struct_padding(const int* x, Padded* y) {
    __shared__ Padded s[32];
    s[T].tag = x[T];
    s[T].value = x[T] * 2;
    __syncwarp();
    y[T] = s[31 - T];
}

//@ partial words | - | 1, 32 | i32[32], i32[32]=0 | a struct with padding, copied as words by the lanes and unpacked again
extern "C" __global__ void struct_padding_as_words(const int* x, int* y) {
    __shared__ Padded from[32], to[32];
    from[T].tag = x[T];
    from[T].value = x[T] * 2;
    __syncwarp();
    for (int i = T; i < 64; i += 32) reinterpret_cast<int*>(to)[i] = reinterpret_cast<int*>(from)[i];
    __syncwarp();
    y[T] = to[31 - T].tag + to[31 - T].value;
}

//@ global races | - | 4, 64 | f32[256], f32[5]=0, u32[1]=0 | the sum by the last block as in the CUDA guide: volatile partial sums, the counter reset by a plain store
extern "C" __global__ void last_block_of_the_guide(const float* x, volatile float* y, unsigned* tickets) {
    __shared__ bool last;
    float v = x[B * 64 + T];
    if (T == 0) {
        y[B] = v;
        __threadfence();
        last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && T == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; i++) sum += y[i];
        y[4] = sum;
        *tickets = 0;
    }
}

//@ alignment | - | 1, 32 | @array_at_odd_address | atomics on an array at an odd host address
extern "C" __global__ void atomics_on_odd_array(int* x) {
    atomicAdd(&x[T % 8], 1);
}

//@ block barriers | - | 1, 96 | f32[96], f32[96]=0 | a warp writes and exits; the exit is its arrival at the barrier of the others
extern "C" __global__ void exit_is_arrival(const float* x, float* y) {
    __shared__ float s[96];
    s[T] = x[T];
    if (T >= 64) return;
    __syncthreads();
    y[T] = s[T + 32];
}

//@ atomics | - | 2, 64 | f64[128], f64[1]=0 | double addition by compare-and-swap, which begins with a plain load
__device__ void add_by_cas(double* sum, double v) {
    auto* word = reinterpret_cast<unsigned long long*>(sum);
    unsigned long long old = *word, assumed;
    do {
        assumed = old;
        old = atomicCAS(word, assumed, __double_as_longlong(v + __longlong_as_double(assumed)));
    } while (assumed != old);
}
extern "C" __global__ void compare_and_swap_loop(const double* x, double* sum) {
    add_by_cas(sum, x[B * 64 + T]);
}

//@ uninitialised memory | - | 1, 32 | i32[32]%4, f32[32]=0 | a local array of which only the filled part is used, by loads that may be hoisted
extern "C" __global__ void local_array_partly_used(const int* n, float* y) {
    float v[4];
    for (int i = 0; i < n[T]; i++) v[i] = i + 0.5f;
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += i < n[T] ? v[i] : 0.0f;
    y[T] = sum;
}

//@ uninitialised memory | - | 1, 64 | f32[40], f32[64]=0, i32:40 | the tail of the tile is loaded by a select and dropped
extern "C" __global__ void tail_dropped_by_select(const float* x, float* y, int n) {
    __shared__ float s[64];
    if (T < n) s[T] = x[T];
    __syncthreads();
    float v = s[63 - T];
    y[T] = 63 - (int)T < n ? v : 0.0f;
}

//@ small elements | - | 1, 64 | u8[64], u8[64]=0 | neighbouring bytes of one word, each by its own thread, some in different warps' words
extern "C" __global__ void bytes_side_by_side(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char s[66];
    s[T + 1] = x[T];
    __syncthreads();
    y[T] = s[64 - T];
}

//@ small elements | - | 1, 64 | f16[64], f16[64]=0 | two warps fill the even and the odd halves of the same words
extern "C" __global__ void halves_of_two_warps(const __half* x, __half* y) {
    __shared__ __half s[64];
    s[T % 32 * 2 + T / 32] = x[T];
    __syncthreads();
    y[T] = s[T];
}

//@ scopes | - | 4, 32 | i32[128], u64[5]=0 | flag and value in one 64-bit word need no fence
extern "C" __global__ void packed_flag_and_value(const int* x, unsigned long long* state) {
    if (T != 0) return;
    unsigned long long before = 0;
    if (B > 0)
        while (((before = atomicAdd(&state[B - 1], 0ull)) & 1) == 0) {}
    atomicExch(&state[B], ((before >> 1) + x[B * 32]) << 1 | 1);
}

//@ atomics | - | 1, 32 | i32[32]%4, i32[4]=0 | a histogram where equal keys elect a leader
extern "C" __global__ void match_histogram(const int* x, int* bins) {
    unsigned peers = __match_any_sync(ALL, x[T]);
    if (T == __ffs(peers) - 1) bins[x[T]] += __popc(peers);
}

//@ atomics | - | 1, 64 | i32[1]=0, i32[1]=0 | every lane takes the lock: independent thread scheduling lets it be
extern "C" __global__ void lock_by_every_lane(int* lock, int* y) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *y += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

//@ divergence | - | 1, 48 | f32[48], f32[48]=0 | a block of one and a half warps
extern "C" __global__ void partial_last_warp(const float* x, float* y) {
    __shared__ float s[48];
    s[T] = x[T];
    __syncthreads();
    y[T] = s[47 - T];
}

//@ shuffles | - | 1, 48 | f32[48], f32[48]=0 | a shuffle of the sixteen lanes that the last warp has
extern "C" __global__ void shuffle_of_partial_warp(const float* x, float* y) {
    unsigned mask = T < 32 ? ALL : 0xffff;
    float v = x[T];
    v += __shfl_xor_sync(mask, v, 8);
    y[T] = v;
}

//@ shuffles | - | 1, 32 | f32[32], f32[1]=0 | shfl_down beyond the last lane returns the lane's own value
extern "C" __global__ void shuffle_down_to_the_end(const float* x, float* y) {
    float v = x[T];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(ALL, v, d);
    if (T == 0) *y = v;
}

//@ warp order | - | 1, 32 | f32[32], f32[32]=0 | both branches meet at a warp barrier of all lanes at different lines
extern "C" __global__ void warp_barriers_of_two_branches(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];
    if (T % 2) {
        __syncwarp();
        y[T] = s[T - 1];
    } else {
        __syncwarp();
        y[T] = s[T + 1];
    }
}

//@ warp order | - | 1, 32 | f32[32], f32[32]=0 | a lane reads back what it wrote itself
extern "C" __global__ void own_slot(const float* x, float* y) {
    __shared__ float s[32][4];
    for (int i = 0; i < 4; i++) s[T][i] = x[T] * i;
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += s[T][3 - i];
    y[T] = sum;
}

//@ lanes collide | - | 1, 64 | i32[64]%16, i32[16]=0 | any of several lanes may win, by an atomic exchange
extern "C" __global__ void winner_by_exchange(const int* x, int* y) {
    atomicExch(&y[x[T]], (int)T);
}

//@ block barriers | - | 1, 64 | f32[64], f32[64]=0 | two arrays of dynamic size in one buffer, each used for one thing after the other with a barrier between
extern "C" __global__ void union_of_buffers(const float* x, float* y) {
    __shared__ union { float f[64]; int i[64]; } u;
    u.f[T] = x[T];
    __syncthreads();
    float v = u.f[63 - T];
    __syncthreads();
    u.i[T] = (int)v;
    __syncthreads();
    y[T] = u.i[T ^ 1];
}

//@ registers | - | 1, 64 | f32[64], f32[1]=0 | a variable set in the first iteration of a loop that runs at least once
extern "C" __global__ void set_in_first_iteration(const float* x, float* y) {
    float best;
    for (int i = 0; i < 4; i++) {
        float v = x[(T * 4 + i) % 64];
        if (i == 0) best = v;
        else best = fmaxf(best, v);
    }
    if (T == 0) *y = best;
}
