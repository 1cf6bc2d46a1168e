// Lanes of one warp that exchange data through memory: only __syncwarp, for the lanes of its mask, orders them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define T threadIdx.x
#define ALL 0xffffffffu

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | lanes may diverge: the neighbour's word is stale
extern "C" __global__ void warp_rotate_f32(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    y[T] = s[(T + 1) % 32];  //!
}

//@ small elements | race | 1, 32 | f16[32], f16[32]=0 | a half of the neighbour, stale
extern "C" __global__ void warp_rotate_f16(const __half* x, __half* y) {
    __shared__ __half s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    y[T] = s[(T + 2) % 32];  //!
}

//@ small elements | race | 1, 32 | bf16[32], bf16[32]=0 | the half of the same word, written by the neighbour
extern "C" __global__ void warp_swap_bf16(const __nv_bfloat16* x, __nv_bfloat16* y) {
    __shared__ __nv_bfloat16 s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    y[T] = s[T ^ 1];  //!
}

//@ small elements | race | 1, 32 | u8[32], u8[32]=0 | bytes of one word, each by its lane
extern "C" __global__ void warp_reverse_bytes(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    y[T] = s[31 - T];  //!
}

//@ small elements | race | 1, 64 | i16[64], i16[64]=0 | shorts across two warps
extern "C" __global__ void block_reverse_shorts(const short* x, short* y) {
    __shared__ short s[64];
    s[T] = x[T];  //!
    __syncthreads();  //+
    y[T] = s[63 - T];  //!
}

//@ small elements | race | 1, 32 | f16[64], f16[64]=0 | pairs of halves written, single halves read
extern "C" __global__ void warp_half2_store_half_load(const __half2* x, __half* y) {
    __shared__ __half2 s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    const __half* h = reinterpret_cast<const __half*>(s);
    y[T] = h[T];  //!
    y[T + 32] = h[63 - T];  //!
}

//@ small elements | race | 1, 32 | u32[32], i32[32]=0 | words written, bytes of other lanes' words read
extern "C" __global__ void warp_word_store_byte_load(const unsigned* x, int* y) {
    __shared__ unsigned s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    const unsigned char* b = reinterpret_cast<const unsigned char*>(s);
    y[T] = b[T] + b[127 - T];  //!
}

//@ small elements | race | 1, 32 | u8[128], u32[32]=0 | bytes written, words of them read
extern "C" __global__ void warp_byte_store_word_load(const unsigned char* x, unsigned* y) {
    __shared__ __align__(4) unsigned char s[128];
    for (int i = 0; i < 4; i++) s[i * 32 + T] = x[i * 32 + T];  //!
    __syncwarp();  //+
    y[T] = reinterpret_cast<const unsigned*>(s)[T];  //!
}

//@ small elements | race | 1, 32 | f16[256], f16[256]=0 | an 8x32 tile of halves transposed by one warp
extern "C" __global__ void warp_transpose_f16(const __half* x, __half* y) {
    __shared__ __half s[8][34];
    for (int r = 0; r < 8; r++) s[r][T] = x[r * 32 + T];  //!
    __syncwarp();  //+
    for (int i = 0; i < 8; i++) y[i * 32 + T] = s[T % 8][i * 4 + T / 8];  //!
}

//@ warp order | race | 1, 32 | f32[128], f32[128]=0 | float4 written, floats of other lanes read
extern "C" __global__ void warp_float4_store_scalar_load(const float4* x, float* y) {
    __shared__ float4 s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    const float* f = reinterpret_cast<const float*>(s);
    for (int i = 0; i < 4; i++) y[i * 32 + T] = f[i * 32 + T];  //!
}

//@ warp order | race | 1, 32 | f32[64], f32[64]=0 | floats written, float2 read
extern "C" __global__ void warp_scalar_store_float2_load(const float* x, float2* y) {
    __shared__ __align__(8) float s[64];
    s[T] = x[T];  //!
    s[T + 32] = x[T + 32];  //!
    __syncwarp();  //+
    y[T] = reinterpret_cast<const float2*>(s)[T];  //!
}

//@ warp order | race | 1, 32 | f64[32], f64[32]=0 | doubles, two words each
extern "C" __global__ void warp_reverse_f64(const double* x, double* y) {
    __shared__ double s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    y[T] = s[31 - T];  //!
}

//@ warp order | advice race | 1, 64 | f32[64], f32[2]=0 | the unrolled last warp of an old reduction: volatile is no order between lanes since Volta
extern "C" __global__ void volatile_last_warp(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[T];
    __syncthreads();
    if (T < 32) {
        volatile float* v = s;
        v[T] += v[T + 32];  //-!
        v[T] += v[T + 16];  //-!
        v[T] += v[T + 8];  //-!
        float mine = v[T] + v[T + 32];  //+
        __syncwarp(); v[T] = mine; __syncwarp();  //+
        mine += v[T + 16];  //+
        __syncwarp(); v[T] = mine; __syncwarp();  //+
        mine += v[T + 8];  //+
        __syncwarp(); v[T] = mine; __syncwarp();  //+
        if (T < 2) y[T] = v[T] + v[T + 2] + v[T + 4] + v[T + 6];  //!
    }
}

//@ warp order | race | 1, 32 | f32[32], f32[1]=0 | a tree inside one warp with plain accesses
extern "C" __global__ void warp_tree_plain(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    for (int d = 16; d > 0; d >>= 1) {
        if (T < d) s[T] += s[T + d];  //!
        __syncwarp();  //+
    }
    if (T == 0) *y = s[0];  //!
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | the warp barrier orders the stores of lanes 0 to 15 only
extern "C" __global__ void partial_mask_too_small(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    if (T < 16) {
        __syncwarp(0xffff);  //-
        __syncwarp(ALL);  //+
        y[T] = s[T + 16];  //!
    } else {  //+
        __syncwarp(ALL);  //+
    }
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | two halves meet among themselves, data crosses between them
extern "C" __global__ void half_masks_cross(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    unsigned mask = T < 16 ? 0x0000ffffu : 0xffff0000u;
    __syncwarp(mask);
    y[T] = s[T ^ 16];  //-!
    y[T] = s[T ^ 8];  //+
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | each quad has its own barrier, one lane reads the next quad
extern "C" __global__ void quad_masks_cross(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    __syncwarp(0xfu << (T & 28));
    y[T] = s[(T & 28) | ((T + 1) & 3)];  //+
    y[T] = s[(T + 1) % 32];  //-!
}

//@ warp order | advice race | 1, 32 | i32[32], i32[32]=0 | a vote converges lanes; it orders no memory
extern "C" __global__ void ballot_as_barrier(const int* x, int* y) {
    __shared__ int s[32];
    s[T] = x[T];  //!
    unsigned votes = __ballot_sync(ALL, x[T] & 1);
    __syncwarp();  //+
    y[T] = s[(T + 1) % 32] + votes;  //!
}

//@ warp order | advice race | 1, 32 | f32[32], f32[32]=0 | a shuffle converges lanes; it orders no memory
extern "C" __global__ void shuffle_as_barrier(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    float v = __shfl_xor_sync(ALL, x[T], 1);
    __syncwarp();  //+
    y[T] = s[31 - T] + v;  //!
}

//@ warp order | advice race | 1, 32 | i32[32], i32[32]=0 | any_sync between a store and a load of another lane
extern "C" __global__ void vote_as_barrier(const int* x, int* y) {
    __shared__ int s[32];
    s[T] = x[T];  //!
    if (__any_sync(ALL, x[T] > 20)) {
        __syncwarp();  //+
        y[T] = s[T ^ 3];  //!
    }
}

//@ warp order | advice race | 1, 32 | i32[32]%4, i32[32]=0 | match_any_sync between a store and a load of another lane
extern "C" __global__ void match_as_barrier(const int* x, int* y) {
    __shared__ int s[32];
    s[T] = x[T];  //!
    unsigned peers = __match_any_sync(ALL, x[T]);
    __syncwarp();  //+
    y[T] = s[31 - __clz(peers)];  //!
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | a fence orders a lane's own accesses; it waits for no other lane
extern "C" __global__ void fence_as_warp_barrier(const float* x, float* y) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    __threadfence_block();  //-
    __syncwarp();  //+
    y[T] = s[T ^ 1];  //!
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0, i32[1]=0 | an atomic elsewhere orders nothing for the lanes that do not see each other's
extern "C" __global__ void atomic_as_warp_barrier(const float* x, float* y, int* count) {
    __shared__ float s[32];
    s[T] = x[T];  //!
    atomicAdd(count, 1);
    __syncwarp();  //+
    y[T] = s[T ^ 5];  //!
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | the write after the read: the tile is refilled while others read it
extern "C" __global__ void warp_war_in_loop(const float* x, float* y) {
    __shared__ float s[32];
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        s[T] = x[T] + i;  //!
        __syncwarp();
        sum += s[(T + i + 1) % 32];  //!
        __syncwarp();  //+
    }
    y[T] = sum;
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | the warp barrier stands inside the branch, so it orders only its lanes
extern "C" __global__ void barrier_of_active_lanes(const float* x, float* y) {
    __shared__ float s[32];
    if (T % 2 == 0) {
        s[T] = x[T];  //!
        __syncwarp(__activemask());  //-
    }
    __syncwarp();  //+
    y[T] = s[T & ~1];  //!
}

//@ warp order | race/uninitialised | 1, 32 | f32[32], f32[32]=0 | lane 0 computes, the others read its result from shared memory
extern "C" __global__ void leader_broadcast(const float* x, float* y) {
    __shared__ float head;
    if (T == 0) head = x[0] * 3.0f;  //!
    __syncwarp();  //+
    y[T] = x[T] + head;  //!
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | global memory between lanes: the neighbour's output is read back
extern "C" __global__ void warp_global_exchange(const float* x, float* y) {
    y[T] = x[T] * 2.0f;  //!
    __syncwarp();  //+
    float v = y[T ^ 1];  //!
    __syncwarp();
    y[T] = v;
}

struct Flags {
    unsigned a : 4, b : 4, c : 8, d : 16;
};

//@ small elements | race | 1, 2 | u32[2], u32[1]=0 | two lanes set neighbouring bit fields of one byte: each rewrites the other's
extern "C" __global__ void bit_fields_of_one_word(const unsigned* x, unsigned* y) {
    __shared__ Flags f;
    if (T == 0) *reinterpret_cast<unsigned*>(&f) = 0;
    __syncwarp(3);
    if (T == 0) f.a = x[0];  //!
    __syncwarp(3);  //+
    if (T == 1) f.b = x[1];  //!
    __syncwarp(3);
    if (T == 0) *y = *reinterpret_cast<unsigned*>(&f);
}

struct Item {
    short key;
    unsigned char tag, count;
    float value;
};

//@ small elements | race | 1, 32 | f32[32], f32[32]=0 | a member of a small struct written by another lane
extern "C" __global__ void struct_members(const float* x, float* y) {
    __shared__ Item items[32];
    items[T].key = T;
    items[T].value = x[T];
    items[T].count = 0;
    items[(T + 1) % 32].tag = T;  //!
    __syncwarp();  //+
    y[T] = items[T].value + items[T].tag;  //!
}

//@ small elements | race | 1, 32 | i8[128], i32[32]=0 | char4 stored, one char of the next lane read
extern "C" __global__ void char4_neighbour(const char4* x, int* y) {
    __shared__ char4 s[32];
    s[T] = x[T];  //!
    __syncwarp();  //+
    y[T] = s[(T + 1) % 32].x + s[T].w;  //!
}
