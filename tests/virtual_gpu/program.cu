// A program with host code that uses what the CUDA runtime has; its arguments say which parts.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#define OK(call)                                                                       \
    do {                                                                               \
        cudaError_t error = (call);                                                    \
        if (error != cudaSuccess) {                                                    \
            printf("%s: %s (%s)\n", #call, cudaGetErrorString(error), cudaGetErrorName(error)); \
            exit(9);                                                                   \
        }                                                                              \
    } while (0)

__constant__ int factor[2];
__device__ int counter;
__managed__ int shared_by_both = 5;

__global__ void scale(int *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = i * factor[1];
    atomicAdd(&counter, 1);
    if (i == 0) shared_by_both += 1;
    if (i == 3) printf("thread %d of %d\n", i, blockDim.x);
}

__global__ void add(int *values, int number) { values[threadIdx.x] += number; }

__global__ void beyond(int *values) {
    values[threadIdx.x] = 1;  // line of the bug
}

__global__ void racy(int *values) { values[0] = threadIdx.x; }

__global__ void endless(volatile int *values) {
    while (values[0] == 0) {
    }
}

__global__ void sum_of_grid(int *values, int *total) {
    auto grid = cooperative_groups::this_grid();
    values[grid.thread_rank()] = (int)grid.thread_rank();
    grid.sync();
    if (grid.thread_rank() == 0) {
        int sum = 0;
        for (int i = 0; i < (int)grid.size(); i++) sum += values[i];
        *total = sum;
    }
}

__global__ void sample(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float *out) {
    out[threadIdx.x] = tex2D<float>(texture, threadIdx.x + 0.5f, 1.5f);
    surf2Dwrite(threadIdx.x * 10.0f, surface, threadIdx.x * sizeof(float), 0);
}

__global__ void faces(cudaTextureObject_t texture, float *out) {
    float along[3] = {0, 0, 0};
    along[threadIdx.x / 2] = threadIdx.x % 2 ? -2.0f : 2.0f;
    out[threadIdx.x] = texCubemap<float>(texture, along[0], along[1], along[2]);
}

static void host_function(void *data) { *(int *)data += 100; }

static int plain(int argc, char **argv) {
    int *values, host[100], numbers[2] = {2, 3}, count = 0;
    OK(cudaMalloc(&values, sizeof host));
    OK(cudaMemcpyToSymbol(factor, numbers, sizeof numbers));
    scale<<<2, 64>>>(values, 100);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost));
    OK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    int wrong = 0;
    for (int i = 0; i < 100; i++) wrong += host[i] != 3 * i;
    std::cout << "wrong " << wrong << ", counted " << count << ", managed " << shared_by_both << ", arguments";
    for (int i = 1; i < argc; i++) std::cout << ' ' << argv[i];
    std::cout << std::endl;
    OK(cudaFree(values));
    return wrong;
}

static int graphs() {
    int *values, host[4] = {1, 2, 3, 4}, out[4], called = 0, number = 10;
    OK(cudaMalloc(&values, sizeof host));
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    OK(cudaStreamCreate(&first));
    OK(cudaStreamCreate(&second));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    OK(cudaMemcpyAsync(values, host, sizeof host, cudaMemcpyHostToDevice, first));
    OK(cudaEventRecord(fork, first));
    OK(cudaStreamWaitEvent(second, fork, 0));
    add<<<1, 4, 0, second>>>(values, number);
    OK(cudaEventRecord(join, second));
    OK(cudaStreamWaitEvent(first, join, 0));
    OK(cudaLaunchHostFunc(first, host_function, &called));
    OK(cudaMemset2DAsync(values + 1, 4, 0, 4, 1, first));
    OK(cudaMemcpyAsync(out, values, sizeof out, cudaMemcpyDeviceToHost, first));
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(first, &graph));
    memset(out, 0, sizeof out);
    number = 77;  // the captured launch keeps what it was given
    size_t count = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    cudaGraphExec_t executable;
    OK(cudaGraphInstantiate(&executable, graph, 0));
    printf("before %d %d, nodes %zu\n", out[0], called, count);
    OK(cudaGraphLaunch(executable, first));
    OK(cudaGraphLaunch(executable, first));
    OK(cudaStreamSynchronize(first));
    printf("captured %d %d %d, called %d\n", out[0], out[1], out[3], called);
    // Nodes by hand, the first added last: order follows from dependencies.
    cudaGraph_t made;
    OK(cudaGraphCreate(&made, 0));
    cudaKernelNodeParams kernel = {};
    int more = 5;
    void *arguments[] = {&values, &more};
    kernel.func = (void *)add;
    kernel.gridDim = dim3(1), kernel.blockDim = dim3(4), kernel.kernelParams = arguments;
    cudaGraphNode_t launch, fill, copy;
    OK(cudaGraphAddKernelNode(&launch, made, nullptr, 0, &kernel));
    cudaMemsetParams set = {};
    set.dst = values, set.elementSize = 4, set.width = 4, set.height = 1, set.value = 7;
    OK(cudaGraphAddMemsetNode(&fill, made, nullptr, 0, &set));
    OK(cudaGraphAddDependencies(made, &fill, &launch, nullptr, 1));
    OK(cudaGraphAddMemcpyNode1D(&copy, made, &launch, 1, out, values, sizeof out, cudaMemcpyDeviceToHost));
    cudaGraphExec_t by_hand;
    OK(cudaGraphInstantiate(&by_hand, made, 0));
    OK(cudaGraphLaunch(by_hand, first));
    printf("by hand %d\n", out[2]);
    more = 6;
    OK(cudaGraphExecKernelNodeSetParams(by_hand, launch, &kernel));
    OK(cudaGraphLaunch(by_hand, first));
    printf("updated %d\n", out[2]);
    // Memory of a graph that is freed outside of it comes back at the same address with the next launch.
    cudaGraph_t with_memory;
    int *own;
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&own, sizeof host, first));
    OK(cudaMemcpyAsync(own, values, sizeof host, cudaMemcpyDeviceToDevice, first));
    add<<<1, 4, 0, first>>>(own, 1);
    OK(cudaStreamEndCapture(first, &with_memory));
    cudaGraphExec_t again;
    OK(cudaGraphInstantiate(&again, with_memory, 0));
    for (int i = 0; i < 2; i++) {
        OK(cudaGraphLaunch(again, first));
        OK(cudaMemcpy(out, own, sizeof out, cudaMemcpyDeviceToHost));
        OK(cudaFreeAsync(own, first));
    }
    printf("memory of a graph %d\n", out[1]);
    cudaGraphExecUpdateResultInfo info;
    printf("other nodes: %s\n", cudaGetErrorName(cudaGraphExecUpdate(by_hand, graph, &info)));
    return 0;
}

static int textures() {
    float host[3][4], back[4], *out;
    for (int i = 0; i < 12; i++) (&host[0][0])[i] = i;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array, target;
    OK(cudaMallocArray(&array, &format, 4, 3));
    OK(cudaMallocArray(&target, &format, 4, 2, cudaArraySurfaceLoadStore));
    OK(cudaMemcpy2DToArray(array, 0, 0, host, sizeof host[0], sizeof host[0], 3, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc description = {};
    description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
    cudaTextureObject_t texture;
    OK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    cudaSurfaceObject_t surface;
    resource.res.array.array = target;
    OK(cudaCreateSurfaceObject(&surface, &resource));
    OK(cudaMalloc(&out, 4 * sizeof(float)));
    sample<<<1, 4>>>(texture, surface, out);
    OK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    printf("texels %g %g %g %g\n", back[0], back[1], back[2], back[3]);
    OK(cudaMemcpy2DFromArray(back, sizeof back, target, 0, 0, sizeof back, 1, cudaMemcpyDeviceToHost));
    printf("written %g %g %g %g\n", back[0], back[1], back[2], back[3]);
    float *pitched;  // rows with a gap between them
    size_t pitch;
    OK(cudaMallocPitch(&pitched, &pitch, sizeof host[0], 3));
    OK(cudaMemcpy2D(pitched, pitch, host, sizeof host[0], sizeof host[0], 3, cudaMemcpyHostToDevice));
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = pitched, resource.res.pitch2D.desc = format;
    resource.res.pitch2D.width = 4, resource.res.pitch2D.height = 3, resource.res.pitch2D.pitchInBytes = pitch;
    OK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    sample<<<1, 4>>>(texture, surface, out);
    OK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    printf("at a pitch %g %g %g %g\n", back[0], back[1], back[2], back[3]);
    float cube[6][2][2], seen[6], *six;
    for (int i = 0; i < 24; i++) (&cube[0][0][0])[i] = i / 4;
    OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(2, 2, 6), cudaArrayCubemap));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(cube, sizeof cube[0][0], 2, 2), copy.dstArray = array;
    copy.extent = make_cudaExtent(2, 2, 6), copy.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&copy));
    resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
    description.normalizedCoords = 1;
    OK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    OK(cudaMalloc(&six, sizeof seen));
    faces<<<1, 6>>>(texture, six);
    OK(cudaMemcpy(seen, six, sizeof seen, cudaMemcpyDeviceToHost));
    printf("faces %g %g %g %g %g %g\n", seen[0], seen[1], seen[2], seen[3], seen[4], seen[5]);
    return 0;
}

static int boxes() {
    cudaExtent extent = make_cudaExtent(6, 3, 2);
    cudaPitchedPtr memory;
    OK(cudaMalloc3D(&memory, extent));
    OK(cudaMemset3D(memory, 7, extent));
    char host[2][3][6];
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = memory;
    copy.dstPtr = make_cudaPitchedPtr(host, 6, 6, 3);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&copy));
    int sum = 0;
    for (char each : std::vector<char>(&host[0][0][0], &host[0][0][0] + 36)) sum += each;
    printf("sum %d, pitch at least %d\n", sum, memory.pitch >= 6);
    return 0;
}

static int cooperative() {
    int *values, *total, threads = 0, blocks = 0;
    OK(cudaMalloc(&values, 256 * sizeof(int)));
    OK(cudaMallocManaged(&total, sizeof(int)));
    void *arguments[] = {&values, &total};
    OK(cudaLaunchCooperativeKernel((void *)sum_of_grid, dim3(4), dim3(64), arguments, 0, nullptr));
    OK(cudaDeviceSynchronize());
    OK(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add));
    printf("total %d, threads %d\n", *total, threads);
    return 0;
}

// A kernel that NVRTC compiles to machine code, as programs do that know their GPU.
static int compiled() {
    const char *source = "extern \"C\" __global__ void set(int *p) { *p = 42; }", *options[] = {"-arch=sm_90"};
    nvrtcProgram program;
    size_t bytes;
    int *values, result = 0;
    nvrtcCreateProgram(&program, source, "set.cu", 0, nullptr, nullptr);
    if (nvrtcCompileProgram(program, 1, options) != NVRTC_SUCCESS) return 1;
    nvrtcGetCUBINSize(program, &bytes);
    std::vector<char> cubin(bytes);
    nvrtcGetCUBIN(program, cubin.data());
    CUmodule module;
    CUfunction function;
    OK(cudaMalloc(&values, sizeof(int)));
    if (cuModuleLoadData(&module, cubin.data()) || cuModuleGetFunction(&function, module, "set")) return 1;
    void *arguments[] = {&values};
    if (cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr)) return 1;
    OK(cudaMemcpy(&result, values, sizeof(int), cudaMemcpyDeviceToHost));
    printf("compiled %d\n", result);
    return 0;
}

static int streams() {
    int *values;
    cudaStream_t left, right;
    OK(cudaMalloc(&values, 16 * sizeof(int)));  // the memory of both streams
    OK(cudaMemset(values, 0, 16 * sizeof(int)));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&right, cudaStreamNonBlocking));
    add<<<1, 16, 0, left>>>(values, 1);   // the first of two
    add<<<1, 16, 0, right>>>(values, 2);  // the second of two
    OK(cudaDeviceSynchronize());
    return 0;
}

// A process that is forked has no GPU; it ends by itself.
static int forked() {
    int *values, state = 0;
    OK(cudaMalloc(&values, sizeof(int)));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        add<<<1, 1>>>(values, 1);
        printf("child: %s\n", cudaGetErrorName(cudaGetLastError()));
        fflush(stdout);
        _exit(3);
    }
    waitpid(child, &state, 0);
    printf("it ended with %d\n", WEXITSTATUS(state));
    return 0;
}

static int part(const char *what, int argc, char **argv) {
    int *values;
    if (!strcmp(what, "plain")) return plain(argc, argv);
    if (!strcmp(what, "graphs")) return graphs();
    if (!strcmp(what, "textures")) return textures();
    if (!strcmp(what, "boxes")) return boxes();
    if (!strcmp(what, "cooperative")) return cooperative();
    if (!strcmp(what, "compiled")) return compiled();
    if (!strcmp(what, "forked")) return forked();
    if (!strcmp(what, "streams")) return streams();
    if (!strcmp(what, "exit")) exit(7);
    if (!strcmp(what, "crash")) *(volatile int *)nullptr = 1;
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "memory")) {
        printf("memory: %s\n", cudaGetErrorName(cudaMalloc(&values, (size_t)1 << 50)));
        return cudaGetLastError() == cudaErrorMemoryAllocation ? 0 : 1;
    }
    OK(cudaMalloc(&values, 16 * sizeof(int)));
    OK(cudaMemset(values, 0, 16 * sizeof(int)));
    printf("%s\n", what);
    fflush(stdout);
    if (!strcmp(what, "beyond")) beyond<<<1, 32>>>(values);
    if (!strcmp(what, "racy")) racy<<<1, 32>>>(values);
    if (!strcmp(what, "endless")) endless<<<1, 1>>>(values);
    if (!strcmp(what, "wrong")) add<<<1, 2048>>>(values, 1);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("then: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return 0;
}

int main(int argc, char **argv) {
    int status = 0;
    for (int i = 1; i < argc; i++) status += part(argv[i], argc, argv);
    return status;
}
