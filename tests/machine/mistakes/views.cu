// Views of one host array that are passed as several arguments.
#define T threadIdx.x

//@ views | race | 1, 64 | @shifted | the output begins one element after the input: a warp overwrites what the other has not read
extern "C" __global__ void shifted_copy(const float* x, float* y) {
    float v = x[T];  //!
    __syncthreads();  //+
    y[T] = v + 1;  //!
}

//@ views | race | 1, 64 | @same_array_twice | input and output are one array: reversal in place
extern "C" __global__ void reverse_in_place(const float* x, float* y) {
    float v = x[63 - T];  //!
    __syncthreads();  //+
    y[T] = v;  //!
}

//@ views | race | 1, 64 | @read_only_view_of_output | the input is a read-only view of the output
extern "C" __global__ void stencil_of_output(const float* x, float* y) {
    float v = x[T] + x[T < 63 ? T + 1 : T];  //!
    __syncthreads();  //+
    y[T] = v;  //!
}

//@ views | advice out of bounds | 1, 64 | @rows_of_one_matrix | a row overrun lands in the row that was passed as another argument
extern "C" __global__ void overrun_into_next_row(const float* x, float* y) {
    y[T] = x[T + 1];  //-!
    y[T] = x[(T + 1) % 64];  //+
}

//@ views | advice out of bounds | 1, 64 | @disjoint_halves | an output overrun before its beginning lands in the input
extern "C" __global__ void underrun_into_input(const float* x, float* y) {
    float v = x[T];
    __syncthreads();
    y[(int)T - 1] = v;  //-!
    y[T] = v;  //+
}

//@ views | race | 1, 64 | @disjoint_halves | two views of one array, joined by the kernel's own stride
extern "C" __global__ void scan_over_both_halves(float* x, float* y) {
    x[T] += 1;  //!
    y[T] = x[T ^ 32];  //-!
    __syncthreads();  //+
    y[T] = x[T ^ 32];  //+
}

//@ views | - | 1, 64 | @disjoint_halves | views that share an array but no element
extern "C" __global__ void copy_between_halves(const float* x, float* y) {
    y[T] = x[63 - T] * 2;
}

//@ views | - | 1, 64 | @interior_view | the elements before and after a view belong to its array: p[-1] is right, as on a GPU
extern "C" __global__ void stencil_around_view(const float* x, float* y) {
    y[T] = x[(int)T - 1] + x[T] + x[T + 1];
}

//@ views | - | 1, 64 | @same_array_twice | every thread reads and writes its own element
extern "C" __global__ void scale_in_place(const float* x, float* y) {
    y[T] = x[T] * 2;
}
