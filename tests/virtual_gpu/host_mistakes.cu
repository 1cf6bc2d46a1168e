// First mistakes of host code, each chosen by a word; test_host_mistakes.py finds their lines by the comments.
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

__global__ void add_one(float *x) { x[threadIdx.x] += 1; }
__global__ void through(float **x) { x[0][threadIdx.x] = 1; }
__global__ void shared_sum(float *x) {
    extern __shared__ float values[];
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = values[31 - threadIdx.x];
}
__global__ void signal_host(float *x) {
    x[0] = 7;
    __threadfence_system();
    if (threadIdx.x == 0) static_cast<volatile float *>(x)[31] = 1;
}
__constant__ float factors[4];

struct Vector { float *data; };
static float global_array[32];
static float *device, *managed, *pinned;

static const char *name(cudaError_t error) { return cudaGetErrorName(error); }
static void say(cudaError_t error) { printf("%s\n", name(error)); }

static void read_it() {
    printf("%f\n", device[3]);  // reads
}
static void write_it() {
    device[1] = 2;  // writes
}
static void print_it() {
    printf("%s\n", reinterpret_cast<char *>(device));  // prints
    printf("and goes on\n");
}
static void read_freed() {
    cudaFree(device);           // frees
    printf("%f\n", device[0]);  // reads what was freed
}
static void result_in_it() {
    Vector *vector;
    cudaMalloc(&vector, sizeof(Vector));
    cudaMalloc(&vector->data, 128);  // a result
}
static void good() {
    float host[32];
    memset(managed, 0, 128);
    memset(pinned, 0, 128);
    add_one<<<1, 32>>>(managed);
    add_one<<<1, 32>>>(pinned);
    cudaDeviceSynchronize();
    cudaMemcpy(device, pinned, 128, cudaMemcpyDefault);
    cudaMemcpy(host, device, 128, cudaMemcpyDeviceToHost);
    printf("%g %g %g\n", managed[31], pinned[31], host[31]);
}
static void directions() {
    float host[32] = {0};
    say(cudaMemcpy(host, device, 128, cudaMemcpyHostToDevice));  // swapped
    say(cudaMemcpy(device, host, 128, cudaMemcpyDeviceToHost));
    say(cudaMemcpy(host, device, 128, static_cast<cudaMemcpyKind>(7)));
    say(cudaMemcpy(managed, device, 128, cudaMemcpyHostToDevice));  // an H200 copies these
    say(cudaMemcpy(device, managed, 128, cudaMemcpyDeviceToHost));
    say(cudaMemcpy(pinned, device, 128, cudaMemcpyDeviceToDevice));
    say(cudaMemcpy(factors, host, 16, cudaMemcpyHostToDevice));
}
static void frees() {
    float host[32] = {0};
    say(cudaFree(host));
    say(cudaFree(device + 1));
    say(cudaFree(pinned));
    say(cudaFreeHost(device));
    say(cudaFree(device));
    say(cudaFree(device));  // again
    say(cudaMemcpy(host, device, 128, cudaMemcpyDeviceToHost));
    say(cudaHostUnregister(host));
}
static void ignored_launch() { add_one<<<1, 2048>>>(device); }
static void ignored_fault() {
    add_one<<<1, 64>>>(device);
    cudaDeviceSynchronize();
}
static void ignored_copy() {
    float host[32] = {0};
    cudaMemcpy(host, device, 128, cudaMemcpyHostToDevice);
}
static void asked() {
    add_one<<<1, 2048>>>(device);
    say(cudaGetLastError());
}
static void much_shared() {
    shared_sum<<<1, 32, 100000>>>(device);
    say(cudaGetLastError());
    cudaFuncSetAttribute(shared_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    shared_sum<<<1, 32, 100000>>>(device);
    say(cudaGetLastError());
}
static void destroyed_stream() {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaStreamDestroy(stream);
    add_one<<<1, 32, 0, stream>>>(device);
    say(cudaGetLastError());
}
static void stack_array() {
    float host[32] = {0};
    add_one<<<1, 32>>>(host);
    say(cudaDeviceSynchronize());
}
static void heap_array() {
    add_one<<<1, 32>>>(new float[32]());
    say(cudaDeviceSynchronize());
}
static void static_array() {
    add_one<<<1, 32>>>(global_array);
    say(cudaDeviceSynchronize());
}
static void pointer_to_heap() {
    float *host = new float[32], **pointers;
    cudaMalloc(&pointers, 8);
    cudaMemcpy(pointers, &host, 8, cudaMemcpyHostToDevice);
    through<<<1, 32>>>(pointers);
    say(cudaDeviceSynchronize());
}
static void early_time() {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin);
    add_one<<<1, 32>>>(device);
    cudaEventRecord(end);
    float time;
    cudaEventElapsedTime(&time, begin, end);  // too early
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&time, begin, end);
}
static void managed_early() {
    managed[0] = 5;
    add_one<<<1, 32>>>(managed);
    printf("managed %g\n", managed[3]);  // managed before the wait
    cudaDeviceSynchronize();
    printf("then %g\n", managed[3]);
}
static void pinned_early() {
    cudaMemcpyAsync(pinned, device, 128, cudaMemcpyDeviceToHost);
    printf("pinned %g\n", pinned[3]);  // pinned before the wait
}
static void pinned_again() {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    memset(pinned, 0, 128);
    cudaMemcpyAsync(device, pinned, 128, cudaMemcpyHostToDevice, stream);
    printf("may be read %g\n", pinned[3]);
    pinned[3] = 1;  // changed while it is copied
    cudaStreamSynchronize(stream);
    pinned[3] = 2;
}
static void halves() {  // a right program: host and device have a half each
    float *both, host[32] = {0};
    cudaMallocManaged(&both, 1 << 14);
    add_one<<<1, 1024>>>(both);
    both[2048] = 1;
    host[0] = both[4095];
    cudaDeviceSynchronize();
    printf("halves %g\n", host[0] + both[0] + both[2048]);
    cudaFree(both);
}
static void signals() {  // a right program: the host waits for a flag
    signal_host<<<1, 32>>>(managed);
    while (static_cast<volatile float *>(managed)[31] == 0) continue;
    printf("signalled %g\n", managed[0]);
    cudaDeviceSynchronize();
}
static void reset() {
    float host[32];
    cudaDeviceReset();
    say(cudaMemcpy(host, device, 128, cudaMemcpyDeviceToHost));
}

int main(int count, char **words) {
    cudaMalloc(&device, 128);  // the memory of the device
    cudaMallocManaged(&managed, 128);
    cudaMallocHost(&pinned, 128);
    cudaMemset(device, 0, 128);
    std::map<std::string, void (*)()> cases = {
        {"read", read_it}, {"write", write_it}, {"print", print_it}, {"read-freed", read_freed},
        {"result", result_in_it}, {"good", good}, {"directions", directions}, {"frees", frees},
        {"ignored-launch", ignored_launch}, {"ignored-fault", ignored_fault}, {"ignored-copy", ignored_copy},
        {"asked", asked}, {"much-shared", much_shared}, {"destroyed-stream", destroyed_stream},
        {"stack", stack_array}, {"heap", heap_array}, {"static", static_array}, {"pointer", pointer_to_heap},
        {"early-time", early_time}, {"reset", reset},
        {"managed-early", managed_early}, {"pinned-early", pinned_early}, {"pinned-again", pinned_again},
        {"halves", halves}, {"signals", signals},
    };
    for (int number = 1; number < count; ++number) cases.at(words[number])();
    return 0;
}
