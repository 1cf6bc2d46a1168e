// What CUDA C++ has besides arithmetic: locks between lanes, templates, structs by value, constants and variables of
// the device, function pointers, local arrays, recursion by hand, printf and assert.
#include <cassert>
#include <cstdio>

// Each thread takes the lock in turn, lanes of one warp included (forward progress since Volta).
struct Mutex {
    int state;
    __device__ void lock() { while (atomicCAS(&state, 0, 1) != 0); __threadfence(); }
    __device__ void unlock() { __threadfence(); atomicExch(&state, 0); }
};

extern "C" __global__ void locked(Mutex* mutex, volatile long long* total, volatile int* order) {
    mutex->lock();
    const int turn = order[0];
    total[0] += (turn + 1) * (threadIdx.x + 1LL);
    order[0] = turn + 1;
    order[1 + blockIdx.x * blockDim.x + threadIdx.x] = turn;
    mutex->unlock();
}

// Lanes hand a token round the warp, the highest first.
extern "C" __global__ void token(volatile int* out) {
    __shared__ volatile int turn;
    if (threadIdx.x == 0) turn = blockDim.x - 1;
    __syncthreads();
    while (turn != static_cast<int>(threadIdx.x));
    out[threadIdx.x] = clock64() >= 0 ? blockDim.x - 1 - threadIdx.x : -1;
    turn = threadIdx.x - 1;
}

__constant__ float weights[5] = {1, 4, 6, 4, 1};
__constant__ int offsets[3][2] = {{1, -1}, {2, -2}, {3, -3}};
__device__ int launches = 0;
__device__ float table[64];

extern "C" __global__ void blur(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) launches++;
    if (i < 64) table[i] = x[i];
    if (i >= n) return;
    float sum = 0;
    for (int k = -2; k <= 2; k++) sum += weights[k + 2] * x[min(max(i + k, 0), n - 1)];
    y[i] = sum / 16;
}
extern "C" __global__ void look(float* out, int* count) {
    out[threadIdx.x] = table[threadIdx.x] + offsets[threadIdx.x % 3][threadIdx.x % 2];
    *count = launches;
}

struct __align__(8) Line {
    float slope, shift;
    short low;
    double scale;
    unsigned char name[3];
    __device__ float operator()(float x) const { return fmaxf(slope * x + shift, low) * scale; }
};
extern "C" __global__ void by_value(Line line, const float* x, float* y, char letter) {
    y[threadIdx.x] = line(x[threadIdx.x]) + line.name[threadIdx.x % 3] + letter;
}

template <class T, int N>
__global__ void power(const T* x, T* y) {
    T product = 1;
#pragma unroll
    for (int i = 0; i < N; i++) product *= x[threadIdx.x];
    y[threadIdx.x] = product;
}

// A local array with an index that only the lane knows: insertion sort, and a stack for a walk over a tree.
extern "C" __global__ void sort16(const int* x, int* y) {
    int own[16];
    for (int i = 0; i < 16; i++) {
        const int value = x[threadIdx.x * 16 + i];
        int j = i;
        for (; j > 0 && own[j - 1] > value; j--) own[j] = own[j - 1];
        own[j] = value;
    }
    for (int i = 0; i < 16; i++) y[threadIdx.x * 16 + i] = own[i];
}
extern "C" __global__ void tree_depth(const short2* children, int* depths) {
    short stack[64];
    unsigned char depth[64];
    int top = 0, deepest = 0;
    stack[0] = threadIdx.x, depth[0] = 1;
    while (top >= 0) {
        const short node = stack[top];
        const int level = depth[top--];
        deepest = max(deepest, level);
        for (int side = 0; side < 2; side++) {
            const short child = side ? children[node].y : children[node].x;
            if (child > 0) stack[++top] = child, depth[top] = level + 1;
        }
    }
    depths[threadIdx.x] = deepest;
}

extern "C" __global__ void reversed(int* x) {
    extern __shared__ int memory[];
    memory[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void say(const float* x) {
    if (threadIdx.x % 16 == 3) printf("thread %d of block (%u,%u): %.3f %s %c%%\n", threadIdx.x, blockIdx.x, blockIdx.y,
                                      x[threadIdx.x], "ok", 'a' + threadIdx.x % 16);
}
extern "C" __global__ void insist(const int* x) { assert(x[threadIdx.x] < 40); }
