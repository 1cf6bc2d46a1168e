// Loops that never end and waits that nobody ends; recursion, traps and assertions.
#include <assert.h>
#define T threadIdx.x
#define B blockIdx.x

//@ endless | endless/deadlock | 1, 64 | i32[1]=0 | a flag that nobody sets
extern "C" __global__ void spin_on_unset_flag(volatile int* flag) {
    if (T == 32) *flag = 1;  //+
    if (T == 0)
        while (*flag == 0) {}  //!
}

//@ endless | endless/deadlock | 1, 32 | i32[32]%7, i32[32]=0 | a step of zero
extern "C" __global__ void step_of_zero(const int* x, int* y) {
    int sum = 0;
    for (int i = 0; i < 100; i += x[T]) {  //-!
    for (int i = 0; i < 100; i += x[T] + 1) {  //+
        sum += i;  //!
        y[T] = sum;  //!
    }
}

//@ endless | endless/deadlock | 1, 32 | i32[32], i32[32]=0 | an unsigned counter that is never negative
extern "C" __global__ void unsigned_countdown(const int* x, volatile int* y) {
    for (unsigned i = 5; i >= 0; i--) y[T] = x[i % 32];  //-!
    for (unsigned i = 5; i > 0; i--) y[T] = x[i % 32];  //+
}

//@ endless | endless/deadlock | 1, 32 | f32[32], i32[32]=0 | the iteration never converges: the tolerance is below one ulp
extern "C" __global__ void never_converges(const float* x, int* y) {
    float v = x[T] + 2, next = v;
    int n = 0;
    do {
        v = next;  //!
        next = 0.5f * (v + (x[T] + 2) / v) + (n & 1 ? 1e-3f : 0);  //-!
        next = 0.5f * (v + (x[T] + 2) / v);  //+
        n++;  //!
    } while (fabsf(next - v) > 1e-6f * v);  //!
    y[T] = n;
}

//@ endless | endless/deadlock | 1, 64 | i32[1]=0, i32[64]=0 | the lock is never given back
extern "C" __global__ void lock_never_freed(int* lock, int* y) {
    if (T % 32 == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}  //!
        __threadfence();
        y[0] += 1;
        __threadfence();
        atomicExch(lock, 0);  //+
    }
}

//@ endless | endless/deadlock | 2, 1 | i32[2]=0 | two blocks wait for each other before they signal
extern "C" __global__ void wait_before_signal(volatile int* flags) {
    flags[B] = 1;  //+
    while (flags[1 - B] == 0) {}  //!
    flags[B] = 1;  //-
}

//@ endless | deadlock/endless/barrier | 1, 64 | i32[1]=0, i32[64]=0 | one warp waits at a barrier for a warp that spins on a flag set after it
extern "C" __global__ void flag_behind_barrier(volatile int* flag, int* y) {
    if (T == 0) *flag = 1;  //+
    if (T >= 32)
        while (*flag == 0) {}  //!
    __syncthreads();  //!
    if (T == 0) *flag = 1;  //-
    y[T] = 1;
}

//@ endless | endless/deadlock | 3, 32 | i32[4]=0, i32[3]=0 | blocks in a chain, where the first waits for a predecessor that is not there
extern "C" __global__ void chain_without_head(volatile int* ready, int* y) {
    if (T == 0) {
        int before = (B + 2) % 3;  //-
        int before = (int)B - 1;  //+
        if (before >= 0)
            while (ready[before] == 0) {}  //!
        __threadfence();
        y[B] = 1;
        ready[B] = 1;
    }
}

//@ endless | endless/deadlock | 1, 32 | i32[33], i32[32]=0 | a linked list whose last node points into itself
extern "C" __global__ void list_with_a_circle(const int* next, int* y) {
    int n = 0;
    for (int i = T; i != 32; i = next[i] == 31 ? 3 : next[i] + 1) n++;  //-!
    for (int i = T; i != 32; i = next[i] + 1) n++;  //+
    y[T] = n;
}

//@ endless | endless/deadlock | 4, 32 | i32[1]=0 | a grid barrier that waits for one block more than there are
extern "C" __global__ void grid_barrier_off_by_one(int* count) {
    if (T == 0) {
        __threadfence();
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < gridDim.x + 1) {}  //-!
        while (atomicAdd(count, 0) < gridDim.x) {}  //+
        __threadfence();
    }
    __syncthreads();
}

//@ calls | stack | 1, 32 | i32[32]=-1, i32[32]=0, i32:4 | recursion without an end
__device__ __noinline__ int depth(const int* x, int n) {
    volatile int here[2];
    here[n & 1] = n;
    if (n <= 0) return 0;
    int below = depth(x, n - 1 - x[n]);  //-!
    int below = depth(x, n - 1);  //+
    return here[n & 1] + below;
}
extern "C" __global__ void endless_recursion(const int* x, int* y, int n) {
    y[T] = depth(x, n);  //!
}

//@ calls | assertion | 1, 32 | i32[32], i32[32]=0 | an assertion that does not hold
extern "C" __global__ void assertion_fails(const int* x, int* y) {
    assert(x[T] < 20);  //-!
    assert(x[T] < 32);  //+
    y[T] = x[T];
}

//@ calls | trap | 1, 32 | i32[32], i32[32]=0 | a trap for the case that cannot happen
extern "C" __global__ void trap_reached(const int* x, int* y) {
    if (x[T] == 17) __trap();  //-!
    if (x[T] == 99) __trap();  //+
    y[T] = x[T];
}

typedef int (*Function)(int);
__device__ int twice(int x) { return 2 * x; }
__device__ int thrice(int x) { return 3 * x; }

//@ calls | bad call/out of bounds/null pointer | 1, 32 | i32[32], i32[32]=0 | a table of functions with an empty entry
extern "C" __global__ void empty_function_pointer(const int* x, int* y) {
    Function table[3] = {twice, thrice, nullptr};
    Function f = table[x[T] % 3];  //-!
    Function f = table[x[T] % 2];  //+
    y[T] = f(x[T]);  //!
}
