// Memory that was never written and is only copied: whole vectors are a mistake, padding of structures is none.
#define T threadIdx.x

//@ uninitialised memory | uninitialised | 1, 32 | f32[128], f32[256]=0 | half of a tile is filled, and all of it is stored by vectors
extern "C" __global__ void vectors_never_written(const float4* x, float4* y) {
    __shared__ float4 tile[64];
    tile[T] = x[T];
    tile[32 + T] = x[T];  //+
    __syncwarp();
    y[T] = tile[31 - T];
    y[32 + T] = tile[63 - T];  //!
}

//@ uninitialised memory | uninitialised | 1, 32 | f32[128], f32[256]=0 | a tile aligned for TMA of which the last rows were not filled
extern "C" __global__ void aligned_rows_never_written(const float* x, float4* y) {
    __shared__ __align__(128) float tile[256];
    int filled = 128;  //-
    int filled = 256;  //+
    for (int i = T; i < filled; i += 32) tile[i] = x[i % 128];
    __syncwarp();
    for (int i = T; i < 64; i += 32) y[i] = reinterpret_cast<float4*>(tile)[i];  //!
}

//@ uninitialised memory | uninitialised | 1, 32, 1024 | f32[128], f32[256]=0 | vectors of dynamic shared memory that only some lanes have filled
extern "C" __global__ void dynamic_vectors_never_written(const float2* x, float2* y) {
    extern __shared__ float2 dynamic[];
    if (T < 16)  //-
        dynamic[T] = x[T];
    __syncwarp();
    y[T] = dynamic[31 - T];  //!
}

//@ uninitialised memory | uninitialised | 1, 32 | f32[128]=0, i32:1 | a local array of vectors of which one was never set
extern "C" __global__ void local_vectors_never_written(float4* y, int n) {
    float4 a[4];
    int filled = 3;  //-
    int filled = 4;  //+
    for (int i = 0; i < filled; i++) a[(i + n) % 4] = make_float4(i, n, 1, T);
    y[T] = a[(T + n) % 4];  //!
}

//@ uninitialised memory | uninitialised | 1, 32 | f32[32]=0, i32:1 | a member beside others that are copied, which the sum needs
struct __align__(16) Vertex {
    float x, y, z;
};
extern "C" __global__ void local_member_never_written(float* y, int n) {
    Vertex a[4];
    for (int i = 0; i < 4; i++) {
        Vertex& vertex = a[(i + n) % 4];
        vertex.x = n, vertex.z = T;
        vertex.y = i;  //+
    }
    Vertex vertex = a[(T + n) % 4];
    y[T] = vertex.x + vertex.y;  //!
}

//@ partial words | - | 1, 32 | u8[512]=0, i32:1 | padding after the first member
struct Mixed {
    char c;
    int i;
    double d;
};
extern "C" __global__ void copied_local_mixed(Mixed* y, int n) {
    Mixed a[4];
    for (int i = 0; i < 4; i++) {
        Mixed& s = a[(i + T + n) % 4];
        s.c = n, s.i = n, s.d = n + T;
    }
    y[T] = a[(T * 3 + n) % 4];
}

//@ partial words | - | 1, 32 | u8[512]=0, i32:1 | padding at the end, which is copied in vectors of bytes
struct Tail {
    double d;
    int i;
};
extern "C" __global__ void copied_shared_tail(Tail* y, int n) {
    __shared__ Tail a[32];
    a[T].d = n, a[T].i = T;
    __syncwarp();
    y[T] = a[31 - T];
}

//@ partial words | - | 1, 32 | u8[1024]=0, i32:1 | a whole vector of padding, in local memory
struct alignas(32) Wide {
    float x, y, z;
};
extern "C" __global__ void copied_local_wide(Wide* y, int n) {
    Wide a[4];
    for (int i = 0; i < 4; i++) {
        Wide& s = a[(i + T + n) % 4];
        s.x = n, s.y = n, s.z = n + T;
    }
    y[T] = a[(T * 3 + n) % 4];
}

//@ partial words | - | 1, 32 | u8[2048]=0, i32:1 | three whole vectors of padding, in shared memory
struct alignas(64) Line {
    float x;
};
extern "C" __global__ void copied_shared_line(Line* y, int n) {
    __shared__ Line a[32];
    a[T].x = n;
    __syncwarp();
    y[T] = a[31 - T];
}

//@ partial words | - | 1, 32 | u8[512]=0, i32:1 | the fourth word of a structure of three, in local memory
extern "C" __global__ void copied_local_vertex(Vertex* y, int n) {
    Vertex a[4];
    for (int i = 0; i < 4; i++) {
        Vertex& s = a[(i + T + n) % 4];
        s.x = n, s.y = n, s.z = n + T;
    }
    y[T] = a[(T * 3 + n) % 4];
}
