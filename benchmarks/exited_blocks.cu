// What a GPU does with an access to the shared memory of a block that has exited; see exited_blocks.py.
//
// exited_blocks OPERATION BLOCKS DELAY LINGER MUTUAL OCCUPIED LAUNCHES KILOBYTES prints one line of JSON. A process
// makes one experiment, because a launch that fails ends the context.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

enum Operation { NONE, LOAD, STORE, ATOMIC, REDUCE, ARRIVE, STORE_ASYNC, COPY, MULTICAST, OPERATIONS };
static const char* NAMES[] = {"none", "ld", "st", "atom", "red", "mbarrier.arrive", "st.async", "copy", "multicast"};
// The first kilobyte of shared memory is the target, then come an mbarrier and the source of copies.
static const unsigned PATTERN = 0xA5A5A5A5u, BARRIER = 1024, SOURCE = 2048, COPIED = 1024;

struct Outcome {
    unsigned long long value, corrupted, reused, accesses;
};

__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ unsigned multiprocessor() {
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}
__device__ void pause(unsigned nanoseconds) {
    for (unsigned long long start = now(); now() - start < nanoseconds;) asm volatile("nanosleep.u32 100;");
}

// The first block of a cluster accesses the second one's memory `delay` nanoseconds after both have begun, and
// stays for `linger` more; the second exits at once. If it is mutual, both do both.
__global__ void probe(Operation operation, unsigned delay, unsigned linger, bool mutual, unsigned size,
                      const char* source, Outcome* outcome, volatile unsigned* left, unsigned long long* accessed_at) {
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned rank, here = (unsigned)__cvta_generic_to_shared(memory), there, barrier;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank ^ 1));
    barrier = there + BARRIER;
    for (unsigned i = threadIdx.x; i < size / 4; i += blockDim.x) ((unsigned*)memory)[i] = PATTERN;
    for (unsigned i = threadIdx.x; i < COPIED / 4; i += blockDim.x) ((unsigned*)memory)[SOURCE / 4 + i] = 7;
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 500000;" ::"r"(here + BARRIER) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    if (rank == 1 && !mutual) {
        if (threadIdx.x == 0 && blockIdx.x == 1) *left = multiprocessor() + 1;
        return;
    }
    if (delay) pause(delay);
    if (threadIdx.x == 0) {
        unsigned value = 0;
        if (blockIdx.x == 0) *accessed_at = now();
        switch (operation) {
        case LOAD: asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory"); break;
        case STORE: asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(7) : "memory"); break;
        case ATOMIC:
            asm volatile("atom.shared::cluster.add.u32 %0, [%1], 1;" : "=r"(value) : "r"(there) : "memory");
            break;
        case REDUCE: asm volatile("red.shared::cluster.add.u32 [%0], 1;" ::"r"(there) : "memory"); break;
        case ARRIVE:
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
            break;
        case STORE_ASYNC:
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there),
                         "r"(7), "r"(barrier)
                         : "memory");
            break;
        case COPY:
            asm volatile("fence.proxy.async;\ncp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                         "[%0], [%1], %2, [%3];" ::"r"(there),
                         "r"(here + SOURCE), "r"(COPIED), "r"(barrier)
                         : "memory");
            break;
        case MULTICAST:
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                         "[%0], [%1], %2, [%3], %4;" ::"r"(here),
                         "l"(source), "r"(COPIED), "r"(here + BARRIER), "h"((unsigned short)(1 << (rank ^ 1)))
                         : "memory");
            break;
        default: break;
        }
        atomicAdd(&outcome->accesses, 1ull);
        if (value) outcome->value = value;
    }
    if (linger) {
        pause(linger);
        // Another cluster's access must not have reached this block.
        unsigned wrong = 0;
        for (unsigned i = threadIdx.x; i < COPIED / 4; i += blockDim.x) wrong += ((volatile unsigned*)memory)[i] != PATTERN;
        if (wrong && !mutual) atomicAdd(&outcome->corrupted, (unsigned long long)wrong);
    }
}

// Blocks without a cluster that take the multiprocessors that are free, and watch their shared memory.
__global__ void occupy(unsigned nanoseconds, unsigned size, Outcome* outcome, volatile unsigned* left, unsigned long long* accessed_at) {
    extern __shared__ __align__(1024) unsigned char memory[];
    volatile unsigned* words = (volatile unsigned*)memory;
    for (unsigned i = threadIdx.x; i < size / 4; i += blockDim.x) words[i] = PATTERN;
    __syncthreads();
    unsigned long long begun = now();
    pause(nanoseconds);
    unsigned wrong = 0;
    for (unsigned i = threadIdx.x; i < size / 4; i += blockDim.x) wrong += words[i] != PATTERN;
    if (wrong) atomicAdd(&outcome->corrupted, (unsigned long long)wrong);
    if (threadIdx.x == 0 && *left == multiprocessor() + 1 && begun < *accessed_at && *accessed_at < now())
        atomicAdd(&outcome->reused, 1ull);
}

int main(int count, char** words) {
    if (count != 9) return 2;
    int operation = 0;
    while (operation < OPERATIONS && strcmp(NAMES[operation], words[1])) ++operation;
    unsigned blocks = atoi(words[2]), delay = atoi(words[3]), linger = atoi(words[4]);
    bool mutual = atoi(words[5]), occupied = atoi(words[6]);
    int launches = atoi(words[7]), done = 0;
    unsigned size = atoi(words[8]) * 1024;
    Outcome* outcome;
    char* source;
    unsigned* left;
    unsigned long long* accessed_at;
    cudaMallocManaged(&outcome, sizeof *outcome);
    cudaMalloc(&source, COPIED);
    cudaMalloc(&left, 4);
    cudaMalloc(&accessed_at, 8);
    cudaMemset(left, 0, 4);
    cudaMemset(accessed_at, 0, 8);
    memset(outcome, 0, sizeof *outcome);
    cudaStream_t first, second;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaFuncSetAttribute(probe, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
    cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(128);
    config.dynamicSmemBytes = size;
    config.stream = first;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaError_t error = cudaDeviceSynchronize();
    for (; done < launches && error == cudaSuccess; ++done) {
        cudaLaunchKernelEx(&config, probe, (Operation)operation, delay, linger, mutual, size, (const char*)source, outcome,
                           (volatile unsigned*)left, accessed_at);
        if (occupied) occupy<<<264, 128, size, second>>>(delay + 100000, size, outcome, left, accessed_at);
        error = cudaDeviceSynchronize();
        if (error != cudaSuccess) break;
    }
    Outcome seen = {};
    if (error == cudaSuccess) seen = *outcome;
    printf("{\"error\": \"%s\", \"survived\": %d, \"value\": %llu, \"corrupted\": %llu, \"reused\": %llu, \"accesses\": %llu}\n",
           error == cudaSuccess ? "" : cudaGetErrorName(error), done, seen.value, seen.corrupted, seen.reused, seen.accesses);
    return 0;
}
