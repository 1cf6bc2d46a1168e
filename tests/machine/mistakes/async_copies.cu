// cp.async: groups belong to the thread that committed them; a wait is no barrier.
#include <cuda_fp16.h>
#define T threadIdx.x
#define SHARED(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
#define COPY(n, d, s) asm volatile("cp.async.ca.shared.global [%0], [%1], " #n ";" ::"r"(SHARED(d)), "l"(s) : "memory")
#define COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(n) asm volatile("cp.async.wait_group " #n ";" ::: "memory")
#define WAIT_ALL() asm volatile("cp.async.wait_all;" ::: "memory")

//@ async copies | asynchronous copy/race/uninitialised | 1, 64 | f32[256], f32[256]=0 | the copy was never waited for
extern "C" __global__ void copy_no_wait(const float4* x, float4* y) {
    __shared__ float4 s[64];
    COPY(16, &s[T], x + T);  //!
    COMMIT();
    WAIT(0);  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race/uninitialised | 1, 64 | f32[64], f32[64]=0 | no barrier: the wait speaks for the thread's own copies
extern "C" __global__ void copy_no_barrier(const float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    WAIT(0);
    __syncthreads();  //+
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[32], f32[32]=0 | within a warp, too, each lane waits for itself
extern "C" __global__ void copy_no_warp_barrier(const float* x, float* y) {
    __shared__ float s[32];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    WAIT(0);
    __syncwarp();  //+
    y[T] = s[T ^ 1];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | only half the threads wait for their copies
extern "C" __global__ void wait_by_half(const float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    if (T < 32) WAIT(0);  //-
    WAIT(0);  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[32], f32[32]=0 | lanes 16 to 31 do not wait for theirs
extern "C" __global__ void wait_by_some_lanes(const float* x, float* y) {
    __shared__ float s[32];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    if (T < 16) WAIT(0);  //-
    WAIT(0);  //+
    __syncwarp();
    y[T] = s[31 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[32], f32[32]=0 | one lane commits: the copies of the others are in no group
extern "C" __global__ void commit_by_one_lane(const float* x, float* y) {
    __shared__ float s[32];
    COPY(4, &s[T], x + T);  //!
    if (T == 0) COMMIT();  //-
    COMMIT();  //+
    WAIT(0);
    __syncwarp();
    y[T] = s[31 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | wait_group waits for committed groups; nothing was committed
extern "C" __global__ void commit_forgotten(const float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    COMMIT();  //+
    WAIT(0);
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the wait comes before the commit
extern "C" __global__ void wait_before_commit(const float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    WAIT(0);  //-
    COMMIT();
    WAIT(0);  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[640], f32[64]=0 | three stages, two groups in flight allowed: the newest two may be the one that is read
extern "C" __global__ void wait_off_by_one(const float* x, float* y) {
    __shared__ float s[3][64];
    float sum = 0;
    for (int i = 0; i < 2; i++) { COPY(4, &s[i][T], x + i * 64 + T); COMMIT(); }  //!
    for (int i = 0; i < 8; i++) {
        WAIT(2);  //-
        WAIT(1);  //+
        __syncthreads();
        COPY(4, &s[(i + 2) % 3][T], x + (i + 2) * 64 + T);  //!
        COMMIT();
        sum += s[i % 3][63 - T];  //!
    }
    WAIT_ALL();
    y[T] = sum;
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[512], f32[64]=0 | at the end of the loop no new groups come, so waiting for all but one is too little
extern "C" __global__ void pipeline_drain(const float* x, float* y) {
    __shared__ float s[3][64];
    float sum = 0;
    for (int i = 0; i < 2; i++) { COPY(4, &s[i][T], x + i * 64 + T); COMMIT(); }
    for (int i = 0; i < 8; i++) {
        WAIT(1);
        __syncthreads();
        if (i + 2 < 8) COPY(4, &s[(i + 2) % 3][T], x + (i + 2) * 64 + T);  //!
        if (i + 2 < 8) COMMIT();  //-
        COMMIT();  //+
        sum += s[i % 3][63 - T];  //!
    }
    y[T] = sum;
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[640], f32[64]=0 | the next tile is copied into the stage that slow warps still read
extern "C" __global__ void copy_into_stage_in_use(const float* x, float* y) {
    __shared__ float s[2][64];
    float sum = 0;
    COPY(4, &s[0][T], x + T);
    COMMIT();
    for (int i = 0; i < 8; i++) {
        __syncthreads();  //+
        COPY(4, &s[(i + 1) & 1][T], x + (i + 1) * 64 + T);  //!
        COMMIT();
        WAIT(1);
        __syncthreads();
        sum += s[i & 1][63 - T];  //!
    }
    WAIT_ALL();
    y[T] = sum;
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the source is overwritten while the copy reads it
extern "C" __global__ void source_overwritten(float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    x[T] = 0;  //-!
    WAIT(0);
    x[T] = 0;  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the source is overwritten by another thread after a barrier without a wait
extern "C" __global__ void source_overwritten_by_other(float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    WAIT(0);  //+
    __syncthreads();
    x[63 - T] = -1;  //!
    WAIT(0);  //-
    __syncthreads();
    y[T] = s[63 - T];
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | a plain store to the target while the copy is on its way
extern "C" __global__ void target_overwritten(const float* x, float* y) {
    __shared__ float s[64];
    COPY(4, &s[T], x + T);  //!
    COMMIT();
    if (T > 60) s[T] = 0;  //-!
    WAIT(0);
    if (T > 60) s[T] = 0;  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | the target is cleared by other threads with no barrier before the copy
extern "C" __global__ void clear_and_copy(const float* x, float* y) {
    __shared__ float s[64];
    s[63 - T] = 0;  //!
    __syncthreads();  //+
    COPY(4, &s[T], x + T);  //!
    WAIT_ALL();
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[64], f32[32]=0 | two lanes copy different words to one place
extern "C" __global__ void copies_collide(const float* x, float* y) {
    __shared__ float s[32];
    COPY(4, &s[T / 2], x + T);  //-!
    COPY(4, &s[T], x + T);  //+
    WAIT_ALL();
    __syncwarp();
    y[T] = s[T / 2];  //!
}

//@ async copies | asynchronous copy/race/uninitialised | 1, 32 | f16[512], u32[64]=0 | ldmatrix of a tile whose copy is on its way
extern "C" __global__ void ldmatrix_before_wait(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[16][16];
    COPY(16, &s[T / 2][T % 2 * 8], x + T * 8);  //!
    COMMIT();
    WAIT(0);  //+
    __syncwarp();
    unsigned v, w;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(v), "=r"(w) : "r"(SHARED(&s[T % 16][0])) : "memory");  //!
    y[T] = v; y[T + 32] = w;
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[128], f32[64]=0 | one warp copies and waits; the other reads after its own, empty, wait
extern "C" __global__ void consumer_waits_for_itself(const float* x, float* y) {
    __shared__ float s[64];
    if (T < 32) {
        COPY(4, &s[T], x + T);  //!
        COPY(4, &s[T + 32], x + T + 32);  //!
        COMMIT();
    }
    WAIT(0);
    __syncthreads();  //+
    y[T] = s[T ^ 32];  //!
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[640], f32[32]=0, i32:3 | a wait with a number of groups that only some lanes have
extern "C" __global__ void groups_differ_by_lane(const float* x, float* y, int n) {
    __shared__ float s[4][32];
    s[3][T] = 0;
    int groups = T < 16 ? 1 : n;
    for (int i = 0; i < groups; i++) { COPY(4, &s[i][T], x + i * 32 + T); COMMIT(); }  //!
    WAIT(1);  //-
    WAIT(0);  //+
    __syncwarp();
    y[T] = s[0][31 - T];  //!
}

//@ bounds | out of bounds | 1, 32 | f32[30], f32[32]=0, i32:30 | the tail is copied from beyond the array
extern "C" __global__ void copy_tail(const float* x, float* y, int n) {
    __shared__ float s[32];
    s[T] = 0;
    COPY(4, &s[T], x + T);  //-!
    if (T < n) COPY(4, &s[T], x + T);  //+
    WAIT_ALL();
    __syncwarp();
    y[T] = s[31 - T];
}

//@ alignment | misaligned | 1, 16 | f32[80], f32[64]=0 | copies of 16 bytes from an address that is a multiple of 4
extern "C" __global__ void copy_misaligned(const float* x, float* y) {
    __shared__ __align__(16) float s[64];
    COPY(16, &s[4 * T], x + 4 * T + 1);  //-!
    COPY(16, &s[4 * T], x + 4 * T + 4);  //+
    WAIT_ALL();
    __syncwarp(0xffff);
    for (int i = 0; i < 4; i++) y[4 * T + i] = s[4 * T + i];
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[2560], f32[32]=0 | more than 64 groups: 72 of 80 may still be on their way
extern "C" __global__ void many_groups(const float* x, float* y) {
    __shared__ float s[80][32];
    for (int i = 0; i < 80; i++) { COPY(4, &s[i][T], x + i * 32 + T); COMMIT(); }  //!
    WAIT(72);  //-
    WAIT(59);  //+
    __syncwarp();
    y[T] = s[20][31 - T];  //!
    WAIT_ALL();
}

//@ warp order | race | 1, 32 | f32[32], f32[32]=0 | commit and wait of copies order no plain stores between lanes
extern "C" __global__ void copy_wait_as_warp_barrier(const float* x, float* y) {
    __shared__ float s[32], t[32];
    COPY(4, &t[T], x + T);
    s[T] = x[T] * 2;  //!
    COMMIT();
    WAIT(0);
    __syncwarp();  //+
    y[T] = s[31 - T] + t[T];  //!
}

//@ async copies | asynchronous copy/race | 1, 64 | f32[128], f32[64]=0 | two warps, two groups each: one warp waits for its older group only
extern "C" __global__ void groups_differ_by_warp(const float* x, float* y) {
    __shared__ float s[2][64];
    COPY(4, &s[0][T], x + T);
    COMMIT();
    COPY(4, &s[1][T], x + 64 + T);  //!
    COMMIT();
    if (T < 32) WAIT(0);
    else WAIT(1);  //-
    else WAIT(0);  //+
    __syncthreads();
    y[T] = s[0][63 - T] + s[1][63 - T];  //!
    WAIT_ALL();
}

//@ async copies | asynchronous copy/race | 1, 32 | f32[400], f32[32]=0 | 100 groups are under way, and one more than waited for is read
extern "C" __global__ void hundred_groups(const float4* x, float4* y) {
    __shared__ float4 s[100];
    if (T == 0) {
        for (int i = 0; i < 100; i++) {
            COPY(16, &s[i], x + i);  //!
            COMMIT();
        }
        WAIT(95);  //-
        WAIT(94);  //+
        for (int i = 0; i < 6; i++) y[i] = s[i];  //!
        WAIT(70);
        y[6] = s[29];
        WAIT(0);
        y[7] = s[99];
    }
}
