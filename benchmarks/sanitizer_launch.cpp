// Launches kernels of cubin files by the driver's interface, with nothing else around them: what compute-sanitizer
// is run on. Each argument of the program names a text file that describes one launch:
//
//     cubin kernel                            a path and a name
//     gx gy gz bx by bz shared                the launch
//     arrays n, then n lines: bytes path      allocations and the file with their contents
//     arguments n, then n lines               "p array offset", or "v" and the bytes of a value in hexadecimal
//
// For each launch one line is printed: the kernel, the driver's result and a digest of what the arrays hold.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static int launch(const char* description) {
    std::ifstream in(description);
    std::string cubin, kernel, word;
    unsigned g[3], b[3], shared;
    in >> cubin >> kernel >> g[0] >> g[1] >> g[2] >> b[0] >> b[1] >> b[2] >> shared;
    size_t count;
    in >> word >> count;
    std::vector<CUdeviceptr> arrays(count);
    std::vector<size_t> sizes(count);
    for (size_t i = 0; i < count; i++) {
        std::string path;
        in >> sizes[i] >> path;
        std::ifstream file(path, std::ios::binary);
        std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        bytes.resize(sizes[i]);
        if (cuMemAlloc(&arrays[i], sizes[i]) || cuMemcpyHtoD(arrays[i], bytes.data(), sizes[i])) return 1;
    }
    in >> word >> count;
    std::vector<std::vector<uint8_t>> values(count);
    std::vector<void*> arguments(count);
    for (size_t i = 0; i < count; i++) {
        in >> word;
        if (word == "p") {
            size_t array, offset;
            in >> array >> offset;
            CUdeviceptr pointer = arrays[array] + offset;
            values[i].assign(reinterpret_cast<uint8_t*>(&pointer), reinterpret_cast<uint8_t*>(&pointer + 1));
        } else {
            in >> word;
            for (size_t at = 0; at < word.size(); at += 2)
                values[i].push_back(static_cast<uint8_t>(std::stoi(word.substr(at, 2), nullptr, 16)));
        }
        arguments[i] = values[i].data();
    }
    CUmodule module;
    CUfunction function;
    CUresult result = cuModuleLoad(&module, cubin.c_str());
    if (!result) result = cuModuleGetFunction(&function, module, kernel.c_str());
    if (!result)
        result = cuLaunchKernel(function, g[0], g[1], g[2], b[0], b[1], b[2], shared, nullptr, arguments.data(), nullptr);
    if (!result) result = cuCtxSynchronize();
    uint64_t digest = 14695981039346656037ull;
    for (size_t i = 0; i < arrays.size() && !result; i++) {
        std::vector<uint8_t> bytes(sizes[i]);
        result = cuMemcpyDtoH(bytes.data(), arrays[i], sizes[i]);
        for (uint8_t byte : bytes) digest = (digest ^ byte) * 1099511628211ull;
        cuMemFree(arrays[i]);
    }
    if (!result) cuModuleUnload(module);
    const char* name = "unknown";
    cuGetErrorName(result, &name);
    std::printf("LAUNCH %s %s %016llx\n", kernel.c_str(), name, static_cast<unsigned long long>(digest));
    std::fflush(stdout);
    return result != CUDA_SUCCESS;
}

int main(int argc, char** argv) {
    CUdevice device;
    CUcontext context;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
        return 3;
    int failed = 0;
    for (int i = 1; i < argc && !failed; i++) failed = launch(argv[i]);
    cuDevicePrimaryCtxRelease(device);
    return failed;
}
