// bar.sync and bar.arrive with ids and counts: who takes part, and how many are awaited.
#define T threadIdx.x
#define WARP (threadIdx.x / 32)
#define SYNC(id, n) asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(n) : "memory")
#define ARRIVE(id, n) asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(n) : "memory")

//@ named barriers | barrier/race/deadlock | 1, 128 | f32[128], f32[128]=0 | four warps use a barrier for three: it completes without one of them
extern "C" __global__ void count_one_warp_short(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    SYNC(1, 96);  //-!
    SYNC(1, 128);  //+
    y[T] = s[127 - T];  //!
}

//@ named barriers | barrier/deadlock | 1, 96 | f32[96], f32[96]=0 | three warps use a barrier for four: it never completes
extern "C" __global__ void count_one_warp_more(const float* x, float* y) {
    __shared__ float s[96];
    s[T] = x[T];
    SYNC(1, 128);  //-!
    SYNC(1, 96);  //+
    y[T] = s[95 - T];
}

//@ named barriers | race | 1, 128 | f32[128], f32[128]=0 | pairs of warps meet, but data comes from the other pair
extern "C" __global__ void wrong_pair_of_warps(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    SYNC(1 + WARP / 2, 64);
    y[T] = s[T ^ 64];  //-!
    y[T] = s[T ^ 32];  //+
}

//@ named barriers | barrier | 1, 64 | f32[64], f32[64]=0, i32:16 | a number of threads that is no multiple of 32
extern "C" __global__ void count_no_multiple(const float* x, float* y, int half) {
    __shared__ float s[64];
    s[T] = x[T];
    asm volatile("bar.sync 1, %0;" ::"r"(3 * half) : "memory");  //-!
    asm volatile("bar.sync 1, %0;" ::"r"(4 * half) : "memory");  //+
    y[T] = s[63 - T];
}

//@ named barriers | barrier | 1, 64 | f32[64], f32[64]=0, i32:15 | there are barriers 0 to 15
extern "C" __global__ void barrier_sixteen(const float* x, float* y, int last) {
    __shared__ float s[64];
    s[T] = x[T];
    SYNC(last + 1, 64);  //-!
    SYNC(last, 64);  //+
    y[T] = s[63 - T];
}

//@ named barriers | race/barrier/deadlock | 1, 128 | f32[64], f32[64]=0 | the producers alone fill the count: the consumers are released early or never
extern "C" __global__ void producer_count(const float* x, float* y) {
    __shared__ float s[64];
    if (T < 64) {
        s[T] = x[T];  //!
        ARRIVE(1, 64);  //-!
        ARRIVE(1, 128);  //+
    } else {
        SYNC(1, 64);  //-!
        SYNC(1, 128);  //+
        y[T - 64] = s[127 - T];  //!
    }
}

//@ named barriers | race | 1, 128 | f32[64], f32[64]=0 | the consumers arrive and do not wait
extern "C" __global__ void consumer_arrives(const float* x, float* y) {
    __shared__ float s[64];
    if (T < 64) {
        s[T] = x[T];  //!
        SYNC(1, 128);
    } else {
        ARRIVE(1, 128);  //-!
        SYNC(1, 128);  //+
        y[T - 64] = s[127 - T];  //!
    }
}

//@ named barriers | race/barrier/deadlock | 1, 128 | f32[256], f32[64]=0 | no second barrier says that the buffer is free again
extern "C" __global__ void no_empty_barrier(const float* x, float* y) {
    __shared__ float s[64];
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        if (T < 64) {
            s[T] = x[i * 64 + T];  //!
            ARRIVE(1, 128);  //!
            SYNC(2, 128);  //+
        } else {
            SYNC(1, 128);  //!
            sum += s[127 - T];  //!
            ARRIVE(2, 128);  //+
        }
    }
    if (T >= 64) y[T - 64] = sum;
}

//@ named barriers | barrier/deadlock | 1, 64 | f32[64], f32[64]=0 | the two warps meet at different barriers
extern "C" __global__ void different_ids(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[T];
    if (T < 32) SYNC(1, 64);  //!
    else SYNC(2, 64);  //-!
    else SYNC(1, 64);  //+
    y[T] = s[63 - T];
}

//@ named barriers | barrier/deadlock | 1, 64 | f32[64], f32[64]=0 | the warps meet at two barriers in opposite order
extern "C" __global__ void opposite_order(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[T];
    if (T < 32) {
        SYNC(1, 64);  //!
        SYNC(2, 64);  //!
    } else {
        SYNC(2, 64);  //-!
        SYNC(1, 64);  //!
        SYNC(2, 64);  //+
    }
    y[T] = s[63 - T];
}

//@ named barriers | race/barrier/deadlock | 1, 128 | f32[128], f32[128]=0 | both halves use one id: warps of different halves meet
extern "C" __global__ void one_id_for_two_groups(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    if (WARP == 1 || WARP == 3) __nanosleep(100);
    SYNC(1, 64);  //-!
    SYNC(1 + T / 64, 64);  //+
    y[T] = s[T ^ 32];  //!
}

//@ named barriers | barrier/deadlock | 1, 64 | f32[64], f32[64]=0 | one warp passes the barrier once more than the other
extern "C" __global__ void loop_counts_differ(const float* x, float* y) {
    __shared__ float s[64];
    s[T] = x[T];
    int rounds = T < 32 ? 3 : 2;  //-
    int rounds = 3;  //+
    for (int i = 0; i < rounds; i++) SYNC(1, 64);  //!
    y[T] = s[63 - T];
}

//@ named barriers | barrier/race/deadlock | 1, 128 | f32[128], f32[128]=0 | warps give different counts for one barrier
extern "C" __global__ void counts_differ(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    if (T < 64) SYNC(1, 64);  //-!
    if (T < 64) SYNC(1, 128);  //+
    else SYNC(1, 128);  //!
    y[T] = s[127 - T];  //!
}

//@ named barriers | race/barrier/deadlock | 1, 96 | f32[96], f32[96]=0 | two warps use barrier 0 by count while the third is at __syncthreads
extern "C" __global__ void barrier_zero_shared(const float* x, float* y) {
    __shared__ float s[96];
    s[T] = x[T];  //!
    if (T < 64) {
        SYNC(0, 64);  //-!
        SYNC(1, 64);  //+
        s[T] = s[T ^ 32] + 1;  //-!
    }
    __syncthreads();  //!
    y[T] = s[95 - T];  //!
}

//@ named barriers | race | 1, 128 | f32[128], f32[128]=0 | the first reader is left out of the barrier before the write
extern "C" __global__ void first_reader_left_out(const float* x, float* y) {
    __shared__ float s[32];
    if (WARP == 3) s[T % 32] = x[T];
    __syncthreads();
    float v = s[31 - T % 32];  //!
    if (WARP != 0) SYNC(1, 96);  //-
    SYNC(1, 128);  //+
    if (WARP == 3) s[T % 32] = 0;  //!
    y[T] = v;
}

//@ named barriers | race | 1, 128 | f32[128], f32[128]=0 | the third of four readers is left out of the barrier before the write
extern "C" __global__ void third_reader_left_out(const float* x, float* y) {
    __shared__ float s[32];
    if (WARP == 3) s[T % 32] = x[T];
    __syncthreads();
    float v = s[31 - T % 32];  //!
    if (WARP != 2) SYNC(1, 96);  //-
    SYNC(1, 128);  //+
    if (WARP == 3) s[T % 32] = 0;  //!
    y[T] = v;
}

//@ small elements | race | 1, 96 | f32[96], u16[32]=0 | a neighbour's half in the same word was handed over in order, this one was not
extern "C" __global__ void neighbour_in_order(const float* x, unsigned short* y) {
    __shared__ unsigned short s[64];
    int lane = T % 32;
    if (WARP == 0) s[2 * lane] = 7 + lane;  //!
    if (WARP == 1) s[2 * lane + 1] = 9 + lane;
    if (WARP > 0) SYNC(1, 64);  //-
    SYNC(1, 96);  //+
    if (WARP == 2) y[lane] = s[2 * (31 - lane)];  //!
}

//@ warp order | race | 1, 64 | f32[64], f32[64]=0 | bar.arrive orders no lanes of its own warp
extern "C" __global__ void arrive_as_warp_barrier(const float* x, float* y) {
    __shared__ float s[64];
    if (WARP == 0) {
        s[T] = x[T];  //!
        ARRIVE(1, 64);
        __syncwarp();  //+
        y[T] = s[31 - T];  //!
    } else {
        SYNC(1, 64);
        y[T] = x[T];
    }
}
