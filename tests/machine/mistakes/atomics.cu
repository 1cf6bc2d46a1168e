// Atomics mixed with plain accesses, counters without atomics, lanes of one store that collide.
#include <cuda_fp16.h>
#define T threadIdx.x

//@ read-modify-write | race | 1, 32 | i32[32]%4, i32[4]=0 | histogram without atomics: counts of one instruction are lost
extern "C" __global__ void histogram_plain(const int* x, int* y) {
    __shared__ int bins[4];
    if (T < 4) bins[T] = 0;
    __syncwarp();
    bins[x[T]]++;  //-!
    atomicAdd(&bins[x[T]], 1);  //+
    __syncwarp();
    if (T < 4) y[T] = bins[T];
}

//@ read-modify-write | race | 1, 32 | i32[1]=0 | all lanes count on one word: one count arrives
extern "C" __global__ void counter_plain_shared(int* y) {
    __shared__ int count;
    if (T == 0) count = 0;
    __syncwarp();
    count++;  //-!
    atomicAdd(&count, 1);  //+
    __syncwarp();
    if (T == 0) *y = count;
}

//@ read-modify-write | race | 4, 64 | i32[1]=0 | a global counter without atomics
extern "C" __global__ void counter_plain_global(int* y) {
    y[0] += 1;  //-!
    atomicAdd(y, 1);  //+
}

//@ read-modify-write | race | 4, 32 | f32[128], f32[1]=0 | one thread of each block adds to a global sum
extern "C" __global__ void block_sums_plain(const float* x, float* total) {
    float v = x[blockIdx.x * 32 + T];
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    if (T == 0) *total += v;  //-!
    if (T == 0) atomicAdd(total, v);  //+
}

//@ read-modify-write | race | 1, 32 | u8[32], u8[4]=0 | byte counters, where there is no atomic of bytes
extern "C" __global__ void histogram_bytes(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char bins[4];
    __shared__ unsigned words[4];
    if (T < 4) { bins[T] = 0; words[T] = 0; }
    __syncwarp();
    bins[x[T] & 3]++;  //-!
    atomicAdd(&words[x[T] & 3], 1u);  //+
    __syncwarp();
    if (T < 4) y[T] = bins[T] + words[T];
}

//@ read-modify-write | race | 1, 32 | i32[32]%16, u32[1]=0 | a set of bits built with |=
extern "C" __global__ void bit_set_plain(const int* x, unsigned* y) {
    __shared__ unsigned bits;
    if (T == 0) bits = 0;
    __syncwarp();
    bits |= 1u << x[T];  //-!
    atomicOr(&bits, 1u << x[T]);  //+
    __syncwarp();
    if (T == 0) *y = bits;
}

//@ read-modify-write | race | 1, 128 | f32[128], f32[1]=0 | the maximum kept by compare and store
extern "C" __global__ void maximum_plain(const float* x, float* y) {
    __shared__ int best;
    if (T == 0) best = 0;
    __syncthreads();
    int v = (int)x[(T * 37) % 128];
    if (v > best) best = v;  //-!
    atomicMax(&best, v);  //+
    __syncthreads();
    if (T == 0) *y = best;
}

//@ read-modify-write | race | 1, 64 | i32[64]%2, i32[64]=0, i32[1]=0 | compaction: a plain post-increment hands out slots twice
extern "C" __global__ void compact_plain(const int* x, int* y, int* count) {
    if (x[T]) {
        int slot = (*count)++;  //-!
        int slot = atomicAdd(count, 1);  //+
        y[slot % 64] = T;  //!
    }
}

//@ read-modify-write | race | 1, 32 | f16[32], f16[1]=0 | a half summed without atomics
extern "C" __global__ void half_sum_plain(const __half* x, __half* y) {
    y[0] = y[0] + x[T];  //-!
    atomicAdd(y, x[T]);  //+
}

//@ read-modify-write | race | 1, 32 | i32[33]%8, f32[8]=0 | scatter-add with repeated indices, the embedding gradient
extern "C" __global__ void scatter_add_plain(const int* index, float* table) {
    table[index[T]] += 1.0f;  //-!
    atomicAdd(&table[index[T]], 1.0f);  //+
}

//@ atomics | race | 1, 64 | i32[1]=0, i32[64]=0 | the total is read while others still add
extern "C" __global__ void read_before_all_added(int* total, int* y) {
    __shared__ int count;
    if (T == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, T);  //!
    __syncthreads();  //+
    y[T] = count;  //!
}

//@ atomics | race | 1, 64 | i32[64]%8, i32[8]=0 | bins are cleared with no barrier before the first atomic
extern "C" __global__ void clear_then_count(const int* x, int* y) {
    __shared__ int bins[8];
    if (T < 8) bins[T] = 0;  //!
    __syncthreads();  //+
    atomicAdd(&bins[x[(T + 40) % 64]], 1);  //!
    __syncthreads();
    if (T < 8) y[T] = bins[T];
}

//@ atomics | race | 1, 64 | i32[1]=0, i32[64]=0 | the lock is taken by an atomic and freed by a plain store without a fence
extern "C" __global__ void unlock_plain(int* lock, int* y) {
    if (T % 32 == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}  //!
        __threadfence();  //+
        y[0] += 1;  //!
        *lock = 0;  //-!
        __threadfence();  //+
        atomicExch(lock, 0);  //+
    }
}

//@ atomics | race | 2, 32 | i32[1]=0, i32[2]=0 | a lock without fences: the data that it guards may lag behind it
extern "C" __global__ void lock_without_fences(int* lock, int* y) {
    if (T == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();  //+
        int v = y[0];  //!
        y[0] = v + 1;  //!
        __threadfence();  //+
        atomicExch(lock, 0);
    }
}

//@ atomics | race | 1, 64 | i32[64], i32[1]=0 | an initial value stored by one thread while others already take the minimum
extern "C" __global__ void minimum_without_start(const int* x, int* y) {
    __shared__ int least;
    if (T == 63) least = 1 << 30;  //!
    __syncthreads();  //+
    atomicMin(&least, x[T]);  //!
    __syncthreads();
    if (T == 0) *y = least;
}

//@ atomics | race | 1, 64 | i32[16]=-1, i32[64]%16 | a hash table: keys claimed by CAS, then replaced by a plain store
extern "C" __global__ void hash_insert(int* table, const int* keys) {
    int slot = keys[T] % 16;
    int old = atomicCAS(&table[slot], -1, keys[T]);  //!
    if (old != keys[T] && old != -1) table[slot] = keys[T];  //+
    table[slot] = keys[T] + T;  //-!
}

//@ lanes collide | race | 1, 32 | i32[32]%8, i32[8]=0 | several lanes store different values to one word; which stays is undefined
extern "C" __global__ void scatter_collision(const int* index, int* y) {
    y[index[T]] = T;  //-!
    if (T < 8) y[index[T]] = T;  //+
}

//@ lanes collide | race | 1, 32 | f32[32], f32[1]=0 | every lane stores its part, lane 0 was meant
extern "C" __global__ void missing_lane_guard(const float* x, float* y) {
    float v = x[T];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
    *y = v;  //-!
    if (T == 0) *y = v;  //+
}

//@ lanes collide | race | 1, 32 | i32[1]=0 | lanes 0 to 30 store zeros, lane 31 a result
extern "C" __global__ void last_lane_over_zeros(int* y) {
    int v = T == 31 ? 5 : 0;
    y[0] = v;  //-!
    if (T == 31) y[0] = v;  //+
}

//@ lanes collide | race | 1, 32 | f32[32], f32[8]=0 | quads overlap: four lanes store to one place, the fourth another value
extern "C" __global__ void quads_overlap(const float* x, float* y) {
    __shared__ float s[8];
    float v = T % 4 == 3 ? x[T] : 1.0f;
    s[T / 4] = v;  //-!
    if (T % 4 == 3) s[T / 4] = v;  //+
    __syncwarp();
    if (T < 8) y[T] = s[T];
}

//@ lanes collide | race | 1, 32 | f16[32], f16[16]=0 | two lanes store different halves to one place
extern "C" __global__ void halves_collide(const __half* x, __half* y) {
    y[T / 2] = x[T];  //-!
    if (T % 2 == 0) y[T / 2] = x[T];  //+
}

//@ lanes collide | race | 1, 32 | u8[32], u8[16]=0 | bytes collide in shared memory
extern "C" __global__ void bytes_collide(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char s[16];
    s[T % 16] = x[T] * 3;  //-!
    if (T < 16) s[T % 16] = x[T] * 3;  //+
    __syncwarp();
    if (T < 16) y[T] = s[T];
}

//@ lanes collide | race | 1, 32 | f32[66], f32[66]=0 | the second store of a lane meets the first store of the next lane
extern "C" __global__ void vectors_overlap(const float* x, float* y) {
    __shared__ float s[66];
    s[T] = x[T];  //-!
    s[T + 1] = x[T] + 7;  //-!
    s[2 * T] = x[T];  //+
    s[2 * T + 1] = x[T] + 7;  //+
    __syncwarp();
    y[T] = s[T];
}

//@ lanes collide | - | 1, 64 | i32[1]=0 | all threads store the same value, a common way to set a flag
extern "C" __global__ void same_value_by_all(int* y) {
    __shared__ int flag;
    if (T == 0) flag = 0;
    __syncthreads();
    flag = 1;
    __syncthreads();
    if (T == 0) *y = flag;
}

//@ lanes collide | race | 1, 32 | i32[1]=0 | thousands of equal stores, then different ones by the same instruction
extern "C" __global__ void equal_then_different(int* y) {
    for (int i = 0; i < 3000; i++) {
        int value = i < 2999 ? 7 : T;  //-
        int value = 7;  //+
        asm volatile("st.global.u32 [%0], %1;" ::"l"(y), "r"(value) : "memory");  //!
    }
}

//@ lanes collide | race | 1, 32 | i32[32], i32[32]=0 | two lanes store equal values, a third one another
extern "C" __global__ void third_lane_differs(const int* x, int* y) {
    __shared__ int s[11];
    int value = T % 3 == 2 ? x[T] + 100 : 5;
    s[T / 3] = value;  //-!
    if (T % 3 == 2) s[T / 3] = value;  //+
    __syncwarp();
    if (T < 10) y[T] = s[T];
}

//@ small elements | race | 2, 32 | u8[64], u8[64]=0 | blocks whose tiles overlap by one byte
extern "C" __global__ void bytes_of_two_blocks(const unsigned char* x, unsigned char* y) {
    int i = blockIdx.x * 31 + T;  //-
    int i = blockIdx.x * 32 + T;  //+
    y[i] = x[T] + blockIdx.x;  //!
}

//@ small elements | - | 2, 31 | f16[62], f16[62]=0 | blocks that write neighbouring halves of one word
extern "C" __global__ void halves_of_two_blocks(const __half* x, __half* y) {
    y[blockIdx.x * 31 + T] = x[T];
}

//@ atomics | race | 1, 128 | i32[128], i32[128]=0 | the thread that clears the counter goes on to count itself; other warps count before it is cleared
extern "C" __global__ void cleared_by_one_that_counts(const int* x, int* y) {
    __shared__ int count;
    if (T == 0) count = 0;  //!
    __syncthreads();  //+
    unsigned kept = __ballot_sync(0xffffffffu, x[T] % 3 == 0);
    int start = 0;
    if (T % 32 == 0) start = atomicAdd(&count, __popc(kept));  //!
    start = __shfl_sync(0xffffffffu, start, 0);
    if (x[T] % 3 == 0) y[start + __popc(kept & ((1u << T % 32) - 1))] = x[T];
}

//@ atomics | race | 1, 64 | i32[1]=0 | the first flag is waited for, and the data is written between it and the second one
extern "C" __global__ void flag_of_earlier_release(int* y) {
    __shared__ int first, second, data;
    if (T == 0) first = 0, second = 0, data = 0;
    __syncthreads();
    if (T == 0) {
        asm volatile("st.release.cta.shared.u32 [%0], 1;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(&first))) : "memory");
        data = 5;  //!
        asm volatile("st.release.cta.shared.u32 [%0], 1;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(&second))) : "memory");
        int seen = 0;
        while (!seen) asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&second))) : "memory");
    }
    if (T == 32) {
        int* flag = &first;  //-
        int* flag = &second;  //+
        int seen = 0;
        while (!seen) asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(static_cast<unsigned>(__cvta_generic_to_shared(flag))) : "memory");
        *y = data;  //!
    }
}
