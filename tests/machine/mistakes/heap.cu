// The device heap: use after free, overflow, double free, leaks, memory that nobody wrote.
#include <cuda_fp16.h>
#define T threadIdx.x

//@ heap | heap/out of bounds | 1, 32 | f32[32], f32[32]=0 | the block is read after it was freed
extern "C" __global__ void use_after_free(const float* x, float* y) {
    volatile float* p = static_cast<float*>(malloc(16 * sizeof(float)));
    if (!p) return;
    for (int i = 0; i < 16; i++) p[i] = x[T] + i;
    free(const_cast<float*>(p));  //-!
    y[T] = p[3];  //!
    free(const_cast<float*>(p));  //+
}

//@ heap | heap/out of bounds | 1, 32 | f32[32], f32[32]=0 | a store after free goes to a block that may be another thread's
extern "C" __global__ void store_after_free(const float* x, float* y) {
    volatile float* p = static_cast<float*>(malloc(64));
    if (!p) return;
    p[0] = x[T];
    y[T] = p[0];
    free(const_cast<float*>(p));  //-!
    p[1] = 0;  //!
    free(const_cast<float*>(p));  //+
}

//@ heap | heap/out of bounds | 1, 4 | f32[32], f32[32]=0 | one element beyond the block
extern "C" __global__ void heap_overflow(const float* x, float* y) {
    float* p = static_cast<float*>(malloc(16 * sizeof(float)));
    if (!p) return;
    for (int i = 0; i <= 16; i++) p[i] = x[T] * i;  //-!
    for (int i = 0; i < 16; i++) p[i] = x[T] * i;  //+
    float sum = 0;
    for (int i = 0; i < 16; i++) sum += p[(i * 7) % 16];
    y[T] = sum;
    free(p);
}

//@ heap | heap/out of bounds | 1, 4 | i32[4], f32[32]=0 | bytes were asked for where elements were meant
extern "C" __global__ void heap_bytes_for_elements(const int* n, float* y) {
    int count = 8 + n[T];
    float* p = static_cast<float*>(malloc(count));  //-!
    float* p = static_cast<float*>(malloc(count * sizeof(float)));  //+
    if (!p) return;
    for (int i = 0; i < count; i++) p[i] = i;  //!
    float sum = 0;
    for (int i = 0; i < count; i++) sum += p[count - 1 - i];  //!
    y[T] = sum;
    free(p);
}

//@ heap | heap | 1, 32 | f32[32], f32[32]=0 | the block is freed twice
extern "C" __global__ void double_free(const float* x, float* y) {
    float* p = static_cast<float*>(malloc(64));
    if (!p) return;
    p[0] = x[T];
    y[T] = *static_cast<volatile float*>(p);
    free(p);
    free(p);  //-!
}

//@ heap | heap | 1, 32 | f32[32], f32[32]=0 | a pointer into the block is freed
extern "C" __global__ void free_interior(const float* x, float* y) {
    float* p = static_cast<float*>(malloc(64));
    if (!p) return;
    p[0] = x[T];
    y[T] = *static_cast<volatile float*>(p);
    free(p + 4);  //-!
    free(p);  //+
}

//@ heap | heap | 1, 32 | f32[32], f32[32]=0 | an array of the host is freed
extern "C" __global__ void free_of_array(float* x, float* y) {
    y[T] = x[T];
    float* p = T == 0 ? x : nullptr;  //-
    float* p = nullptr;  //+
    free(p);  //!
}

//@ heap | advice heap/leak | 1, 32 | f32[32], f32[32]=0 | nobody frees the blocks: later launches run out of heap
extern "C" __global__ void heap_leak(const float* x, float* y) {
    volatile float* p = static_cast<float*>(malloc(256));  //!
    if (!p) return;
    p[0] = x[T];
    y[T] = p[0];
    free(const_cast<float*>(p));  //+
}

//@ heap | advice heap/leak | 1, 32 | i32[32], f32[32]=0 | an early return skips the free
extern "C" __global__ void leak_on_early_return(const int* x, float* y) {
    volatile float* p = static_cast<float*>(malloc(64));  //!
    if (!p) return;
    p[0] = x[T];
    if (x[T] > 20) {
        free(const_cast<float*>(p));  //+
        return;
    }
    y[T] = p[0];
    free(const_cast<float*>(p));
}

//@ heap | uninitialised/heap | 1, 32 | f32[32], f32[32]=0 | malloc does not clear
extern "C" __global__ void heap_uninitialised(const float* x, float* y) {
    volatile float* p = static_cast<float*>(malloc(64));
    if (!p) return;
    p[0] = x[T];
    p[1] = 0;  //+
    y[T] = p[0] + p[1];  //!
    free(const_cast<float*>(p));
}

//@ heap | uninitialised/heap | 1, 32 | f32[32], f32[32]=0 | a counter on the heap that starts at nothing
extern "C" __global__ void heap_counter(const float* x, float* y) {
    int* p = static_cast<int*>(malloc(8));
    if (!p) return;
    *p = 0;  //+
    atomicAdd(p, (int)x[T]);  //!
    y[T] = *static_cast<volatile int*>(p);  //!
    free(p);
}

//@ heap | race | 1, 64 | f32[64], f32[64]=0 | one thread allocates, the others use the pointer at once
extern "C" __global__ void heap_pointer_not_published(const float* x, float* y) {
    __shared__ float* block;
    if (T == 0) block = nullptr;
    __syncthreads();
    if (T == 0) block = static_cast<float*>(malloc(64 * sizeof(float)));  //!
    __syncthreads();  //+
    float* p = block;  //!
    if (p) p[T] = x[T];
    y[T] = x[T];
    __syncthreads();
    if (T == 0) free(block);
}

//@ heap | heap/race/out of bounds | 1, 64 | f32[64], f32[64]=0 | one thread frees while the other warp still reads
extern "C" __global__ void freed_while_in_use(const float* x, float* y) {
    __shared__ float* block;
    if (T == 0) block = static_cast<float*>(malloc(64 * sizeof(float)));
    __syncthreads();
    if (!block) return;
    block[T] = x[T];
    __syncthreads();
    y[T] = block[63 - T];  //!
    __syncthreads();  //+
    if (T == 0) free(block);  //!
}

//@ heap | race | 1, 64 | f32[64], f32[64]=0 | threads exchange through a block on the heap with no barrier
extern "C" __global__ void heap_exchange(const float* x, float* y) {
    __shared__ float* block;
    if (T == 0) block = static_cast<float*>(malloc(64 * sizeof(float)));
    __syncthreads();
    if (!block) return;
    float* p = block;
    p[T] = 0;
    __syncthreads();
    p[T] = x[T];  //!
    __syncthreads();  //+
    y[T] = p[63 - T];  //!
    __syncthreads();
    if (T == 0) free(p);
}

//@ heap | - | 1, 32 | f32[32], f32[32]=0 | an object made with new and deleted again
struct Node { float value; Node* next; };
extern "C" __global__ void list_of_nodes(const float* x, float* y) {
    Node* head = nullptr;
    for (int i = 0; i < 4; i++) head = new Node{x[T] + i, head};
    float sum = 0;
    while (head) { Node* next = head->next; sum += head->value; delete head; head = next; }
    y[T] = sum;
}
