// mbarrier by hand.
#define T threadIdx.x
#define SHARED(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
#define INIT(bar, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SHARED(&bar)), "r"(n) : "memory")
#define ARRIVE(bar) asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(SHARED(&bar)) : "memory")
#define COPY(d, s) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SHARED(d)), "l"(s) : "memory")
#define TEST(bar, parity, done)                                                                            \
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" \
                 : "=r"(done) : "r"(SHARED(&bar)), "r"(parity) : "memory")
#define WAIT(bar, parity) { unsigned done; do { TEST(bar, parity, done); } while (!done); }

//@ mbarrier | race/barrier/uninitialised/mbarrier | 1, 64 | f32[64], f32[64]=0 | threads arrive at a barrier that thread 0 has not made yet
extern "C" __global__ void init_not_published(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 32) INIT(bar, 64);  //!
    __syncthreads();  //+
    s[T] = x[T];
    ARRIVE(bar);  //!
    WAIT(bar, 0);  //!
    y[T] = s[63 - T];  //!
}

//@ mbarrier | race | 1, 64 | f32[64], f32[64]=0 | the parity of the phase before is complete from the start
extern "C" __global__ void wrong_parity(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 64);
    __syncthreads();
    s[T] = x[T];  //!
    ARRIVE(bar);
    WAIT(bar, 1);  //-!
    WAIT(bar, 0);  //+
    y[T] = s[63 - T];  //!
}

//@ mbarrier | race/uninitialised/barrier/deadlock/endless | 1, 64 | f32[256], f32[64]=0 | the parity is not flipped: from the second round on the wait is over at once
extern "C" __global__ void parity_not_flipped(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[4][64];
    if (T == 0) INIT(bar, 64);
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        s[i][T] = x[i * 64 + T];  //!
        ARRIVE(bar);
        WAIT(bar, 0);  //-!
        WAIT(bar, i & 1);  //+
        sum += s[i][63 - T];  //!
    }
    y[T] = sum;
}

//@ mbarrier | race | 1, 64 | f32[64], f32[64]=0 | half as many arrivals as threads complete the phase
extern "C" __global__ void count_too_small(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 32);  //-!
    if (T == 0) INIT(bar, 64);  //+
    __syncthreads();
    s[T] = x[T];  //!
    ARRIVE(bar);  //!
    WAIT(bar, 0);
    y[T] = s[63 - T];  //!
}

//@ mbarrier | deadlock/endless/barrier | 1, 64 | f32[64], f32[64]=0 | more arrivals are awaited than there are threads
extern "C" __global__ void count_too_large(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 65);  //-!
    if (T == 0) INIT(bar, 64);  //+
    __syncthreads();
    s[T] = x[T];
    ARRIVE(bar);
    WAIT(bar, 0);  //!
    y[T] = s[63 - T];
}

//@ mbarrier | deadlock/endless/barrier | 1, 64 | f32[64], f32[64]=0 | one warp forgets to arrive
extern "C" __global__ void arrive_forgotten(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 64);
    __syncthreads();
    s[T] = x[T];
    if (T < 32) ARRIVE(bar);  //-
    ARRIVE(bar);  //+
    WAIT(bar, 0);  //!
    y[T] = s[63 - T];
}

//@ mbarrier | race/uninitialised | 1, 64 | f32[64], f32[64]=0 | the test is made once and its answer not heeded
extern "C" __global__ void test_without_loop(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 64);
    __syncthreads();
    s[T] = x[T];  //!
    ARRIVE(bar);
    unsigned done;
    TEST(bar, 0, done);
    while (!done) TEST(bar, 0, done);  //+
    y[T] = s[63 - T] + (done ? 0 : 1);  //!
}

//@ mbarrier | uninitialised/barrier/deadlock/endless/mbarrier | 1, 32 | f32[32], f32[32]=0 | nobody makes the barrier
extern "C" __global__ void barrier_never_made(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[32];
    if (T == 0) INIT(bar, 32);  //+
    __syncthreads();
    s[T] = x[T];
    ARRIVE(bar);  //!
    WAIT(bar, 0);  //!
    y[T] = s[31 - T];
}

//@ mbarrier | asynchronous copy/race | 1, 64 | f32[64], f32[64]=0 | a plain arrival does not speak for the copies in flight
extern "C" __global__ void arrive_before_copies(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 64);
    __syncthreads();
    COPY(&s[T], x + T);  //!
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SHARED(&bar)) : "memory");  //+
    ARRIVE(bar);  //-
    WAIT(bar, 0);
    y[T] = s[63 - T];  //!
}

//@ mbarrier | deadlock/endless/barrier/race | 1, 64 | f32[64], f32[64]=0 | without .noinc the arrival of the copies is not among those awaited
extern "C" __global__ void copies_and_arrive_counted_twice(const float* x, float* y) {
    __shared__ unsigned long long bar;
    __shared__ float s[64];
    if (T == 0) INIT(bar, 64);
    __syncthreads();
    COPY(&s[T], x + T);
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(SHARED(&bar)) : "memory");
    ARRIVE(bar);  //+
    WAIT(bar, 0);  //!
    y[T] = s[63 - T];  //!
}

//@ mbarrier | misaligned | 1, 32 | f32[32], f32[32]=0 | a barrier takes 8 bytes at a multiple of 8
extern "C" __global__ void barrier_misaligned(const float* x, float* y) {
    __shared__ __align__(8) unsigned words[4];
    unsigned* bar = words + 1;  //-
    unsigned* bar = words + 2;  //+
    if (T == 0) INIT(*bar, 32);  //!
    __syncthreads();
    y[T] = x[T];
    ARRIVE(*bar);  //!
    WAIT(*bar, 0);  //!
}

//@ mbarrier | race/barrier/deadlock/endless | 1, 64 | f32[256], f32[64]=0 | the consumers do not tell the producers that a stage is free
extern "C" __global__ void empty_barrier_not_awaited(const float* x, float* y) {
    __shared__ unsigned long long full, empty;
    __shared__ float s[32];
    if (T == 0) { INIT(full, 32); INIT(empty, 32); }
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        if (T < 32) {
            WAIT(empty, (i & 1) ^ 1);  //+
            s[T] = x[i * 32 + T];  //!
            ARRIVE(full);
        } else {
            WAIT(full, i & 1);  //!
            sum += s[63 - T];  //!
            ARRIVE(empty);
        }
        __syncwarp();
    }
    if (T >= 32) y[T] = sum;
}
