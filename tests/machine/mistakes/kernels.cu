// Larger kernels as they are written: products, normalisations, scans, sorts, pipelines; one mistake in each.
#include <cuda_fp16.h>
#define T threadIdx.x
#define B blockIdx.x
#define ALL 0xffffffffu
#define SHARED(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
#define COPY16(d, s) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SHARED(d)), "l"(s) : "memory")
#define COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(n) asm volatile("cp.async.wait_group " #n ";" ::: "memory")
#define LDMATRIX4(r, p) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(SHARED(p)) : "memory")
#define LDMATRIX2T(r, p) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(SHARED(p)) : "memory")
#define MMA(c, a, b) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// A product of 32×64 and 64×16 by two warps, each with 16 rows, in steps of 16 along k; `HGEMM` is its beginning.
#define HGEMM(stages)                                                   \
    __shared__ __align__(16) __half as[stages][32][16], bs[stages][16][16]; \
    int warp = T / 32, lane = T % 32;                                   \
    float acc[2][4] = {};

__device__ void fetch(__half (*as)[16], __half (*bs)[16], const __half* a, const __half* b, int k) {
    COPY16(&as[T / 2][T % 2 * 8], a + T / 2 * 64 + k + T % 2 * 8);  //!
    if (T < 32) COPY16(&bs[T / 2][T % 2 * 8], b + (k + T / 2) * 16 + T % 2 * 8);  //!
}
__device__ void step(float (*acc)[4], __half (*as)[16], __half (*bs)[16], int warp, int lane) {
    unsigned fa[4], fb[2];
    LDMATRIX4(fa, &as[warp * 16 + lane % 16][lane / 16 * 8]);  //!
    for (int j = 0; j < 2; j++) {
        LDMATRIX2T(fb, &bs[lane % 16][j * 8]);  //!
        MMA(acc[j], fa, fb);
    }
}
__device__ void epilogue(float (*acc)[4], float* c, int warp, int lane) {
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++)
            c[(warp * 16 + lane / 4 + i / 2 * 8) * 16 + j * 8 + lane % 4 * 2 + i % 2] = acc[j][i];  //!
}

//@ async copies | asynchronous copy/race/uninitialised | 1, 64 | f16[2048], f16[1024], f32[512]=0 | two stages: the wait leaves the group of this step in flight
extern "C" __global__ void hgemm_wait_too_late(const __half* a, const __half* b, float* c) {
    HGEMM(2)
    fetch(as[0], bs[0], a, b, 0);
    COMMIT();
    for (int k = 0; k < 4; k++) {
        if (k < 3) fetch(as[(k + 1) % 2], bs[(k + 1) % 2], a, b, (k + 1) * 16);  //!
        COMMIT();
        WAIT(2);  //-
        WAIT(1);  //+
        __syncthreads();
        step(acc, as[k % 2], bs[k % 2], warp, lane);  //!
        __syncthreads();
    }
    epilogue(acc, c, warp, lane);
}

//@ block barriers | race/asynchronous copy | 1, 64 | f16[2048], f16[1024], f32[512]=0 | two stages with one barrier: B is overwritten while the other warp reads it
extern "C" __global__ void hgemm_one_barrier(const __half* a, const __half* b, float* c) {
    HGEMM(2)
    fetch(as[0], bs[0], a, b, 0);
    COMMIT();
    for (int k = 0; k < 4; k++) {
        if (k < 3) fetch(as[(k + 1) % 2], bs[(k + 1) % 2], a, b, (k + 1) * 16);  //!
        COMMIT();
        WAIT(1);
        __syncthreads();
        step(acc, as[k % 2], bs[k % 2], warp, lane);  //!
        __syncthreads();  //+
    }
    epilogue(acc, c, warp, lane);
}

//@ block barriers | race/asynchronous copy | 1, 64 | f16[2048], f16[1024], f32[512]=0 | the barrier comes before the wait: other threads' copies are not known to be there
extern "C" __global__ void hgemm_barrier_before_wait(const __half* a, const __half* b, float* c) {
    HGEMM(3)
    for (int k = 0; k < 2; k++) { fetch(as[k], bs[k], a, b, k * 16); COMMIT(); }  //!
    for (int k = 0; k < 4; k++) {
        __syncthreads();  //-
        WAIT(1);
        __syncthreads();  //+
        if (k < 2) fetch(as[(k + 2) % 3], bs[(k + 2) % 3], a, b, (k + 2) * 16);  //!
        COMMIT();
        step(acc, as[k % 3], bs[k % 3], warp, lane);  //!
    }
    epilogue(acc, c, warp, lane);
}

//@ bounds | out of bounds | 1, 64 | f16[2048], f16[1024], f32[512]=0 | the prologue's guard is missing in the last steps: tiles beyond K are fetched
extern "C" __global__ void hgemm_fetch_beyond(const __half* a, const __half* b, float* c) {
    HGEMM(2)
    fetch(as[0], bs[0], a, b, 0);
    COMMIT();
    for (int k = 0; k < 4; k++) {
        fetch(as[(k + 1) % 2], bs[(k + 1) % 2], a, b, (k + 1) * 16);  //-!
        if (k < 3) fetch(as[(k + 1) % 2], bs[(k + 1) % 2], a, b, (k + 1) * 16);  //+
        COMMIT();
        WAIT(1);
        __syncthreads();
        step(acc, as[k % 2], bs[k % 2], warp, lane);
        __syncthreads();
    }
    WAIT(0);
    epilogue(acc, c, warp, lane);
}

//@ lanes collide | race | 1, 64 | f16[2048], f16[1024], f32[512]=0 | the epilogue forgets the warp's offset: both warps store to the same rows
extern "C" __global__ void hgemm_epilogue_rows(const __half* a, const __half* b, float* c) {
    HGEMM(1)
    for (int k = 0; k < 4; k++) {
        fetch(as[0], bs[0], a, b, k * 16);
        COMMIT();
        WAIT(0);
        __syncthreads();
        step(acc, as[0], bs[0], warp, lane);
        __syncthreads();
    }
    epilogue(acc, c, 0, lane);  //-!
    epilogue(acc, c, warp, lane);  //+
}

//@ block barriers | race | 2, 128 | f32[256], f32[256]=0 | layer norm: the mean is published by one thread, the others read it at once
extern "C" __global__ void layer_norm_mean(const float* x, float* y) {
    __shared__ float sums[4], mean;
    if (T == 0) mean = 0;
    float v = x[B * 128 + T], sum = v;
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(ALL, sum, d);
    if (T % 32 == 0) sums[T / 32] = sum;
    __syncthreads();
    if (T == 0) mean = (sums[0] + sums[1] + sums[2] + sums[3]) / 128;  //!
    __syncthreads();  //+
    y[B * 128 + T] = v - mean;  //!
}

//@ registers | uninitialised | 1, 64 | f32[50], f32[50]=0, i32:50 | soft maximum: threads beyond n bring garbage into the maximum
extern "C" __global__ void softmax_tail(const float* x, float* y, int n) {
    __shared__ float parts[2];
    float v;
    v = -1e30f;  //+
    if (T < n) asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(x + T));
    float m = v;
    for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(ALL, m, d));  //!
    if (T % 32 == 0) parts[T / 32] = m;  //!
    __syncthreads();
    if (T < n) y[T] = exp2f(v - fmaxf(parts[0], parts[1]));
}

//@ block barriers | race | 1, 128 | i32[128], i32[128]=0 | Blelloch scan: no barrier between the levels of the down-sweep
extern "C" __global__ void blelloch_scan(const int* x, int* y) {
    __shared__ int s[128];
    s[T] = x[T];
    for (int d = 1; d < 128; d <<= 1) {
        __syncthreads();
        if (T % (2 * d) == 2 * d - 1) s[T] += s[T - d];
    }
    __syncthreads();
    if (T == 127) s[127] = 0;
    for (int d = 64; d > 0; d >>= 1) {
        __syncthreads();  //+
        if (T % (2 * d) == 2 * d - 1) {
            int left = s[T - d];  //!
            s[T - d] = s[T];  //!
            s[T] += left;  //!
        }
    }
    __syncthreads();
    y[T] = s[T];
}

//@ block barriers | race | 1, 128 | u32[128]%16, u32[128]=0 | radix sort: offsets are used before the scan over the bins is done
extern "C" __global__ void radix_scatter(const unsigned* x, unsigned* y) {
    __shared__ unsigned bins[16];
    if (T < 16) bins[T] = 0;
    __syncthreads();
    atomicAdd(&bins[x[T]], 1u);
    __syncthreads();
    if (T == 0) {
        unsigned sum = 0;
        for (int i = 0; i < 16; i++) { unsigned n = bins[i]; bins[i] = sum; sum += n; }  //!
    }
    __syncthreads();  //+
    y[atomicAdd(&bins[x[T]], 1u) % 128] = x[T];  //!
}

//@ global races | race | 4, 32 | i32[128], i32[4]=0, i32[4]=0 | look-back: the flag of a block is raised before its sum is stored
extern "C" __global__ void lookback_order(const int* x, int* sums, int* flags) {
    int v = x[B * 32 + T];
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(ALL, v, d);
    if (T == 0) {
        if (B > 0) {
            while (atomicAdd(&flags[B - 1], 0) == 0) {}
            __threadfence();
            v += sums[B - 1];  //!
        }
        atomicExch(&flags[B], 1);  //-
        __threadfence();  //-
        sums[B] = v;  //!
        __threadfence();  //+
        atomicExch(&flags[B], 1);  //+
    }
}

//@ small elements | race | 1, 64 | i8[256], i8[256], i32[64]=0 | int8 dot products from byte tiles that the other warp has just stored
extern "C" __global__ void dot_product_bytes(const signed char* a, const signed char* b, int* y) {
    __shared__ __align__(4) signed char as[256], bs[256];
    for (int i = T; i < 256; i += 64) { as[i] = a[i]; bs[i] = b[i]; }  //!
    __syncthreads();  //+
    int sum = 0;
    for (int k = 0; k < 4; k++)
        sum = __dp4a(reinterpret_cast<int*>(as)[(T + k) % 64], reinterpret_cast<int*>(bs)[63 - T], sum);  //!
    y[T] = sum;
}

//@ uninitialised memory | uninitialised | 1, 64 | f32[100], f32[40], f32[64]=0, i32:40 | matrix times vector: the vector's tile is filled for n columns, summed over 64
extern "C" __global__ void gemv_tail(const float* a, const float* x, float* y, int n) {
    __shared__ float s[64];
    if (T < n) s[T] = x[T];
    else s[T] = 0;  //+
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 64; i++) sum += a[(T + i) % 100] * s[i];  //!
    y[T] = sum;
}

//@ bounds | out of bounds | 1, 32 | i32[32], f32[64], f32[32]=0 | sparse rows: the end of the last row is read beyond the row pointers
extern "C" __global__ void sparse_rows(const int* rows, const float* values, float* y) {
    float sum = 0;
    for (int i = rows[T]; i < rows[T + 1]; i++) sum += values[i];  //-!
    if (T < 31) for (int i = rows[T]; i < rows[T + 1]; i++) sum += values[i];  //+
    y[T] = sum;
}

//@ block barriers | race | 1, 18x10 | f32[180], f32[128]=0 | a stencil of two steps in one buffer, the second without a barrier
extern "C" __global__ void stencil_two_steps(const float* x, float* y) {
    __shared__ float s[10][18];
    int r = threadIdx.y, c = T;
    s[r][c] = x[r * 18 + c];
    __syncthreads();
    float v = 0;
    bool inside = r > 0 && r < 9 && c > 0 && c < 17;
    if (inside) v = s[r - 1][c] + s[r + 1][c] + s[r][c - 1] + s[r][c + 1];  //!
    __syncthreads();  //+
    if (inside) s[r][c] = v;  //!
    __syncthreads();
    if (inside) y[(r - 1) * 16 + c - 1] = s[r][c] + s[r - 1][c] + s[r + 1][c];
}

//@ warp order | race | 1, 128 | f32[128], f32[128]=0 | each warp sorts its 32 keys in shared memory without a warp barrier
extern "C" __global__ void odd_even_sort(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T ^ 21];
    __syncwarp();
    int lane = T % 32;
    for (int i = 0; i < 32; i++) {
        if (lane % 2 == i % 2 && lane < 31) {
            float a = s[T], b = s[T + 1];  //!
            if (a > b) { s[T] = b; s[T + 1] = a; }  //!
        }
        __syncwarp();  //+
    }
    __syncwarp();
    y[T] = s[T];
}

//@ scopes | race | 2, 64 | f32[128], f32[1]=0, i32[1]=0 | a global maximum under a lock whose fences are those of a block
extern "C" __global__ void maximum_under_lock(const float* x, float* best, int* lock) {
    float v = x[B * 64 + T];
    for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(ALL, v, d));
    if (T == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence_block();  //-!
        __threadfence();  //+
        if (v > *best) *best = v;  //!
        __threadfence_block();  //-!
        __threadfence();  //+
        atomicExch(lock, 0);
    }
}

//@ read-modify-write | race | 1, 64 | u8[64], i32[8]=0 | per-warp histograms: two lanes of a warp may have the same key
extern "C" __global__ void histogram_per_warp(const unsigned char* x, int* y) {
    __shared__ int bins[2][8];
    if (T < 16) bins[T / 8][T % 8] = 0;
    __syncthreads();
    bins[T / 32][x[T] % 8] += 1;  //-!
    atomicAdd(&bins[T / 32][x[T] % 8], 1);  //+
    __syncthreads();
    if (T < 8) y[T] = bins[0][T] + bins[1][T];
}

//@ alignment | misaligned | 4, 32 | f16[132], f16[128]=0, i32:33 | rows of 33 halves copied as half2
extern "C" __global__ void copy_rows_of_halves(const __half* x, __half* y, int width) {
    const __half* row = x + B * width;
    if (T < 16) reinterpret_cast<__half2*>(y + B * 32)[T] = reinterpret_cast<const __half2*>(row)[T];  //-!
    y[B * 32 + T] = row[T];  //+
}

//@ block barriers | race | 1, 128 | f32[1024], f32[128]=0 | warp-specialised copy: the consumers' last reads race with the producers' next stage
extern "C" __global__ void producer_runs_ahead(const float* x, float* y) {
    __shared__ float s[2][64];
    float sum = 0;
    for (int i = 0; i < 8; i++) {
        if (T < 64) s[i & 1][T] = x[i * 64 + T];  //!
        __syncthreads();
        if (T >= 64) sum += s[i & 1][127 - T];  //!
        if (T >= 64 && i > 0) sum += s[(i - 1) & 1][T - 64];  //!
        __syncthreads();  //+
    }
    if (T >= 64) y[T] = sum;
}

//@ heap | heap/out of bounds | 1, 32 | i32[32]%5, f32[32]=0 | a growing list: the old block is freed before it is copied
extern "C" __global__ void growing_list(const int* n, float* y) {
    int capacity = 2, size = 0;
    float* list = static_cast<float*>(malloc(capacity * sizeof(float)));
    for (int i = 0; i < n[T] && list; i++) {
        if (size == capacity) {
            float* longer = static_cast<float*>(malloc(2 * capacity * sizeof(float)));
            float* old = list;
            if (longer) {
                free(old);  //-!
                for (int j = 0; j < size; j++) longer[j] = *static_cast<volatile float*>(old + j);  //!
                free(old);  //+
                list = longer;
                capacity *= 2;
            }
        }
        list[size++] = i;
    }
    float sum = 0;
    for (int i = 0; i < size; i++) sum += list[i];
    y[T] = sum;
    free(list);
}
