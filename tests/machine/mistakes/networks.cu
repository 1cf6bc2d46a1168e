// Layers of networks and classics of parallel programming, written as public code writes them.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define T threadIdx.x
#define B blockIdx.x
#define WARP (threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
#define ALL 0xffffffffu

//@ warp order | race | 1, 32 | f32[32], f32[16], f32[16] | rotary embedding in place, one thread for each element: a thread reads its partner's element after that has been turned
extern "C" __global__ void rotary_in_place(float* q, const float* cosine, const float* sine) {
    int half = 16, i = T % half;
    float c = cosine[i], s = sine[i];
    if (T < half) {  //+
        float a = q[i], b = q[i + half];  //+
        q[i] = a * c - b * s;  //+
        q[i + half] = b * c + a * s;  //+
    }  //+
    float own = q[T], other = q[(T + half) % 32];  //-!
    q[T] = T < half ? own * c - other * s : own * c + other * s;  //-!
}

//@ block barriers | race | 1, 64 | f32[512], f32[32], f32[16]=0, i32:15 | the new key is appended to the cache, and the scores are taken over all keys with no barrier between
extern "C" __global__ void append_and_attend(float* cache, const float* key, float* scores, int position) {
    if (T < 32) cache[position * 32 + T] = key[T];  //!
    __syncthreads();  //+
    for (int row = WARP; row <= position; row += 2) {
        float sum = cache[row * 32 + LANE] * 0.5f;  //!
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(ALL, sum, d);
        if (LANE == 0) scores[row] = sum;
    }
}

//@ block barriers | race/uninitialised | 1, 64 | i32[128]%16, f32[8], f32[128]=0 | scales of a group are loaded into shared memory; only the first group is waited for
extern "C" __global__ void scales_of_groups(const int* quantised, const float* scales, float* y) {
    __shared__ float scale[2][4];
    for (int group = 0; group < 2; group++) {
        if (T >= 32 && T < 36) scale[group][T - 32] = scales[group * 4 + T - 32];  //!
        if (group == 0) __syncthreads();  //-
        __syncthreads();  //+
        y[group * 64 + T] = (quantised[group * 64 + T] - 8) * scale[group][T % 4];  //!
    }
}

//@ block barriers | race | 1, 64 | i32[64]%8, i32[64]=0 | tokens are counted for each expert; one thread makes offsets of the counts while others take their slots
extern "C" __global__ void expert_offsets(const int* expert, int* order) {
    __shared__ int count[8], offset[8];
    if (T < 8) count[T] = 0;
    __syncthreads();
    int mine = expert[T];
    int rank = atomicAdd(&count[mine], 1);
    __syncthreads();
    if (T == 0)
        for (int e = 0, sum = 0; e < 8; e++) offset[e] = sum, sum += count[e];  //!
    __syncthreads();  //+
    order[offset[mine] + rank] = T;  //!
}

//@ block barriers | race | 1, 64 | f32[64], i32[4]=0 | the four largest, one after the other: the winner of the next round is written while others still look at the last one
extern "C" __global__ void top_four(const float* x, int* best) {
    __shared__ float value[2];
    __shared__ int index[2], winner;
    float mine = x[T];
    for (int k = 0; k < 4; k++) {
        float v = mine;
        int at = T;
        for (int d = 16; d > 0; d /= 2) {
            float w = __shfl_xor_sync(ALL, v, d);
            int where = __shfl_xor_sync(ALL, at, d);
            if (w > v || (w == v && where < at)) v = w, at = where;
        }
        if (LANE == 0) value[WARP] = v, index[WARP] = at;  //!
        __syncthreads();
        if (T == 0) best[k] = winner = value[1] > value[0] ? index[1] : index[0];  //!
        __syncthreads();  //+
        if (winner == T) mine = -1e30f;  //!
    }
}

//@ divergence | advice divergence/barrier/deadlock/race | 1, 64 | f32[64], f32[2]=0 | online softmax: pairs of maximum and sum are merged in a tree whose barrier stands inside the branch
extern "C" __global__ void online_softmax_tree(const float* x, float2* y) {
    __shared__ float2 s[64];
    s[T] = make_float2(x[T], 1.0f);  //!
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {
        if (T < d) {
            float2 a = s[T], b = s[T + d];  //!
            float m = fmaxf(a.x, b.x);
            s[T] = make_float2(m, a.y * (a.x == m ? 1.0f : 0.5f) + b.y * (b.x == m ? 1.0f : 0.5f));  //!
            __syncthreads();  //-!
        }
        __syncthreads();  //+
    }
    if (T == 0) *y = s[0];  //!
}

//@ uninitialised memory | uninitialised | 1, 32x4 | f32[512], f32[32]=0 | a gradient of biases: four rows of sums were written, and eight are added up
extern "C" __global__ void bias_gradient(const float* dy, float* db) {
    __shared__ float sums[8][33];
    float sum = 0;
    for (int row = threadIdx.y; row < 16; row += blockDim.y) sum += dy[row * 32 + threadIdx.x];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    int rows = 8;  //-
    int rows = blockDim.y;  //+
    if (threadIdx.y == 0) {
        float total = 0;
        for (int row = 0; row < rows; row++) total += sums[row][threadIdx.x];  //!
        db[threadIdx.x] = total;
    }
}

//@ global races | race | 3, 64 | f32[192], f32[64]=0, i32[1]=0 | split K with a semaphore: the next block may begin before all warps of this one have added their part
extern "C" __global__ void split_k_in_turn(const float* x, float* y, int* turn) {
    if (T == 0) {
        while (atomicAdd(turn, 0) != B) {}
        __threadfence();
    }
    __syncthreads();
    y[T] += x[B * 64 + T];  //!
    __syncthreads();  //+
    if (T == 0) {
        __threadfence();
        atomicExch(turn, B + 1);  //!
    }
}

//@ global races | race | 2, 64 | f32[64], f32[64]=0, f32[64]=0, i32[1]=0 | stream K: the block that finishes the tile takes the other's part before it has waited for it
extern "C" __global__ void partial_tile_taken_early(const float* x, float* part, float* y, int* ready) {
    if (B == 0) {
        part[T] = 2 * x[T];  //!
        __threadfence();
        __syncthreads();
        if (T == 0) atomicExch(ready, 1);
    } else {
        float other = part[T];  //-!
        if (T == 0) {
            while (atomicAdd(ready, 0) == 0) {}
            __threadfence();
        }
        __syncthreads();
        float other = part[T];  //+
        y[T] = x[T] + other;
    }
}

//@ block barriers | race | 1, 64 | f32[256], f32[64]=0 | flash attention: the maximum of a row is kept in shared memory, and is raised while the other warp rescales by it
extern "C" __global__ void rescaled_by_the_maximum(const float* scores, float* y) {
    __shared__ float maximum[32];
    if (T < 32) maximum[T] = -1e30f;
    float sum = 0;
    for (int block = 0; block < 4; block++) {
        __syncthreads();  //+
        if (T < 32) maximum[T] = fmaxf(maximum[T], scores[block * 64 + T]);  //!
        __syncthreads();
        sum = sum * 0.5f + scores[block * 64 + T] - maximum[T % 32];  //!
    }
    y[T] = sum;
}

//@ shuffles | advice divergence/uninitialised | 1, 256 | f32[256], f32[1]=0 | the sums of eight warps are added by eight lanes with the mask of a whole warp
extern "C" __global__ void sums_of_eight_warps(const float* x, float* y) {
    __shared__ float sums[8];
    float v = x[T];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(ALL, v, d);
    if (LANE == 0) sums[WARP] = v;
    __syncthreads();
    if (T < 8) {
        unsigned mask = ALL;  //-
        unsigned mask = 0xff;  //+
        v = sums[T];
        for (int d = 4; d > 0; d /= 2) v += __shfl_down_sync(mask, v, d);  //!
        if (T == 0) *y = v;
    }
}

//@ uninitialised memory | uninitialised/race | 1, 64 | f32[64], f32[64]=0 | the largest magnitude is found by atomicMax on a word of shared memory that nobody has cleared
extern "C" __global__ void largest_magnitude(const float* x, float* y) {
    __shared__ float largest;
    if (T == 0) largest = 0;  //+
    __syncthreads();
    atomicMax(reinterpret_cast<int*>(&largest), __float_as_int(fabsf(x[T])));  //!
    __syncthreads();
    y[T] = x[T] / (largest + 1.0f);  //!
}

//@ bounds | out of bounds | 1, 32 | i32[32], f32[40], f32[32]=0, i32:32 | a sparse matrix in rows: the array of beginnings has no entry for the end of the last row
extern "C" __global__ void rows_of_a_sparse_matrix(const int* begin, const float* values, float* y, int rows) {
    if (T >= rows) return;
    int end = begin[T + 1];  //-!
    int end = T + 1 < rows ? begin[T + 1] : 40;  //+
    float sum = 0;
    for (int i = begin[T]; i < end; i++) sum += values[i];
    y[T] = sum;
}

//@ global races | race | 2, 32 | i32[64]%16, i32[16]=0, i32[65]=0 | breadth first: a node is tested and marked in two steps, so that two threads may enter it
extern "C" __global__ void frontier(const int* neighbours, int* visited, int* queue) {
    int node = neighbours[B * 32 + T];
    if (visited[node] == 0) {  //-!
        visited[node] = 1;  //-!
    if (atomicExch(&visited[node], 1) == 0) {  //+
        queue[1 + atomicAdd(queue, 1)] = node;
    }
}

//@ block barriers | race/uninitialised | 1, 128 | u32[128]%4, u32[128]=0 | radix sort: the place of a digit needs the counts of the warps before, which may not be there yet
extern "C" __global__ void rank_of_a_digit(const unsigned* keys, unsigned* rank) {
    __shared__ unsigned counts[4][4];
    unsigned digit = keys[T] & 3;
    unsigned same = __match_any_sync(ALL, digit);
    if (LANE < 4) counts[WARP][LANE] = 0;
    __syncwarp();
    unsigned before = __popc(same & ((1u << LANE) - 1));
    if (before == 0) counts[WARP][digit] = __popc(same);  //!
    __syncthreads();  //+
    for (unsigned w = 0; w < WARP; w++) before += counts[w][digit];  //!
    rank[T] = before;
}

//@ global races | race | 4, 32 | i32[128], u64[4]=0, i32[128]=0 | a scan that looks back: value and state are two words of one structure, stored and polled as plain data
extern "C" __global__ void look_back(const int* x, unsigned long long* states, int* y) {
    int v = x[B * 32 + T];
    for (int d = 1; d < 32; d *= 2) {
        int w = __shfl_up_sync(ALL, v, d);
        if (T >= d) v += w;
    }
    int total = __shfl_sync(ALL, v, 31), before = 0;
    if (T == 0) {
        if (B > 0) {
            unsigned long long state;
            do state = *reinterpret_cast<volatile unsigned long long*>(states + B - 1); while (state >> 32 == 0);  //!
            before = static_cast<int>(state);
        }
        unsigned long long mine = 1ull << 32 | static_cast<unsigned>(before + total);
        states[B] = mine;  //-!
        atomicExch(states + B, mine);  //+
    }
    y[B * 32 + T] = v + __shfl_sync(ALL, before, 0);
}

//@ global races | race | 2, 32 | i32[64]%16, u32[32]=0, i32[64]=0 | a hash table: whoever finds the key there reads its value, which the thread that claimed it may not have stored
extern "C" __global__ void value_behind_a_key(const int* keys, unsigned* table, int* y) {
    unsigned key = keys[B * 32 + T] + 1, slot = key % 16;
    unsigned old = atomicCAS(&table[2 * slot], 0u, key);
    if (old == 0) {
        table[2 * slot + 1] = key * 3;  //-!
        atomicExch(&table[2 * slot + 1], key * 3);  //+
    } else {
        y[B * 32 + T] = table[2 * slot + 1];  //-!
        while (atomicAdd(&table[2 * slot + 1], 0) == 0) {}  //+
    }
}

//@ block barriers | race | 1, 64 | f32[64], f32[64]=0 | several steps of a stencil in shared memory, from and to the same buffer
extern "C" __global__ void steps_of_a_stencil(const float* x, float* y) {
    __shared__ float s[2][66];
    s[0][T + 1] = s[1][T + 1] = x[T];
    if (T < 2) s[T][0] = s[T][65] = 0;
    __syncthreads();
    for (int step = 0; step < 4; step++) {
        float *from = s[0], *to = s[0];  //-
        float *from = s[step % 2], *to = s[(step + 1) % 2];  //+
        to[T + 1] = 0.25f * from[T] + 0.5f * from[T + 1] + 0.25f * from[T + 2];  //!
        __syncthreads();
    }
    y[T] = s[0][T + 1];
}

//@ async copies | uninitialised | 1, 64 | f32[50], f32[64]=0, i32:50 | the tail of a tile is not copied, where zeros were meant
extern "C" __global__ void tail_without_zeros(const float* x, float* y, int n) {
    __shared__ float s[64];
    if (T < n) __pipeline_memcpy_async(&s[T], &x[T], 4);  //-
    __pipeline_memcpy_async(&s[T], &x[T < n ? T : 0], 4, T < n ? 0 : 4);  //+
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    y[T] = s[63 - T] * 2;  //!
}

//@ async copies | asynchronous copy/race/uninitialised | 1, 64 | f32[512], f32[64]=0 | fragments of the next step are read from the next stage before its copies were waited for
extern "C" __global__ void next_fragment_early(const float* x, float* y) {
    __shared__ float s[2][64];
    __pipeline_memcpy_async(&s[0][T], &x[T], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    float fragment = s[0][63 - T], sum = 0;
    for (int t = 1; t < 8; t++) {
        __pipeline_memcpy_async(&s[t % 2][T], &x[64 * t + T], 4);  //!
        __pipeline_commit();
        sum += fragment;
        float next = s[t % 2][63 - T];  //-!
        __pipeline_wait_prior(0);
        __syncthreads();
        float next = s[t % 2][63 - T];  //+
        fragment = next;
    }
    y[T] = sum + fragment;
}

//@ global races | race | 2, 32 | i32[64], i32[2]=0 | a random generator's state for each block, used by all of its threads
extern "C" __global__ void one_state_for_a_block(int* x, unsigned* states) {
    unsigned state = states[B] + (T + 1) * 0u;  //-!
    unsigned state = states[B] + T * 747796405u;  //+
    state = state * 747796405u + 2891336453u + T;
    x[B * 32 + T] = state >> 16;
    states[B] = state;  //-!
    __syncwarp();  //+
    if (T == 31) states[B] = state;  //+
}

//@ global races | race | 1, 64 | f32[64], f32[64]=0 | what the kernel itself has written is read through the read-only cache, which a barrier does not make coherent
extern "C" __global__ void read_only_load_of_own_output(float* x, float* y) {
    x[T] = x[T] + 1;  //!
    __syncthreads();
    y[T] = __ldg(&x[63 - T]);  //-!
    y[T] = x[63 - T];  //+
}

//@ divergence | divergence/deadlock | 1, 32 | i32[32]%5, i32[32]=0 | every lane has a loop of its own length, with a warp barrier of all lanes in it
extern "C" __global__ void warp_barrier_in_own_loop(const int* length, int* y) {
    __shared__ int s[32];
    int sum = 0;
    s[T] = 0;
    int rounds = length[T];  //-
    int rounds = 4;  //+
    for (int i = 0; i < rounds; i++) {
        s[T] += i;
        __syncwarp();  //!
        sum += i < length[T] ? s[T] : 0;
    }
    y[T] = sum;
}

//@ scopes | race | 1, 64 | f32[32], f32[32]=0 | a lock in shared memory between two warps, without fences around what it guards
extern "C" __global__ void lock_of_warps(const float* x, float* y) {
    __shared__ int lock;
    __shared__ float sum;
    if (T == 0) lock = 0, sum = 0;
    __syncthreads();
    if (LANE == 0) {
        while (atomicCAS_block(&lock, 0, 1) != 0) {}
        __threadfence_block();  //+
        sum += x[WARP];  //!
        __threadfence_block();  //+
        atomicExch_block(&lock, 0);
    }
    __syncthreads();
    if (T == 0) *y = sum;
}

//@ registers | uninitialised | 1, 64 | f32[64], f32[64]=0, i32:40 | register tile of a GEMM: the fragment is loaded only inside the matrix, and multiplied everywhere
extern "C" __global__ void fragment_of_the_edge(const float* x, float* y, int n) {
    float fragment[2], sum = 0;
    for (int k = 0; k < 2; k++) {
        fragment[k] = 0;  //+
        if (T + k < n) fragment[k] = x[T + k];
    }
    for (int k = 0; k < 2; k++) sum += fragment[k] * fragment[k];  //!
    y[T] = sum;  //!
}

//@ global races | race | 4, 32 | f32[128], f32[32]=0, u32[1]=0 | every block clears the output before it adds to it by atomics
extern "C" __global__ void cleared_by_every_block(const float* x, float* y, unsigned* ready) {
    if (B == 0) y[T] = 0;  //+
    if (B == 0) __threadfence();  //+
    __syncwarp();  //+
    if (B == 0 && T == 0) atomicExch(ready, 1);  //+
    if (T == 0) while (atomicAdd(ready, 0) == 0) {}  //+
    __threadfence();  //+
    __syncwarp();  //+
    y[T] = 0;  //-!
    atomicAdd(&y[T], x[B * 32 + T]);  //!
}

//@ matrix accesses | race/uninitialised | 1, 64 | f16[512], u32[64]=0 | two warps share a tile of halves, and ldmatrix follows on a warp barrier
extern "C" __global__ void tile_of_two_warps(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half tile[16][24];
    for (int i = T; i < 256; i += 64) tile[i / 16][i % 16] = x[i];  //!
    __syncwarp();  //-
    __syncthreads();  //+
    unsigned a, row = static_cast<unsigned>(__cvta_generic_to_shared(&tile[LANE % 16][LANE / 16 * 8]));
    unsigned b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");  //!
    y[T] = a + b + c + d;
}
