"""Headers that NVRTC has not: those of C and C++ as libcu++ has them, and CUB's for blocks and warps.

What nvcc's implicit cuda_runtime.h brings with it from the host is in the prelude.
"""

from lanewise.isa.tensor_map_fields import DRIVER_ENUMERATIONS

#: Headers of the C and C++ libraries that device code includes: NVRTC has none, libcu++ has what is in them.
_STANDARD = (
    "array", "bit", "bitset", "cassert", "cfloat", "climits", "cmath", "complex", "concepts", "cstddef",
    "cstdint", "cstdlib", "cstring", "functional", "initializer_list", "iterator", "limits", "numbers",
    "numeric", "optional", "ratio", "span", "tuple", "type_traits", "utility", "version",
)  # fmt: skip
_C_HEADERS = ("assert", "limits", "math", "stddef", "stdint", "stdlib", "string")
_INTO_STD = "namespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n"
#: libcu++ of CUDA 13.0 has the algorithms, but no header of that name.
_ALGORITHM = (
    "#pragma once\n#if __has_include(<cuda/std/algorithm>)\n#include <cuda/std/algorithm>\n"
    "#elif __has_include(<cuda/std/__algorithm_>)\n#include <cuda/std/__algorithm_>\n#endif\n"
    "#include <cuda/std/utility>\n" + _INTO_STD
)
#: The limits of IEEE floats; libcu++ of CUDA 13.0 leaves them out for NVRTC, later ones have them.
_FLOAT_LIMITS = {
    "FLT_RADIX": "2", "FLT_DIG": "6", "FLT_MANT_DIG": "24", "FLT_MIN_EXP": "(-125)", "FLT_MAX_EXP": "128",
    "FLT_MIN": "1.17549435e-38f", "FLT_MAX": "3.40282347e+38f", "FLT_EPSILON": "1.19209290e-7f",
    "DBL_DIG": "15", "DBL_MANT_DIG": "53", "DBL_MIN_EXP": "(-1021)", "DBL_MAX_EXP": "1024",
    "DBL_MIN": "2.2250738585072014e-308", "DBL_MAX": "1.7976931348623157e+308",
    "DBL_EPSILON": "2.2204460492503131e-16",
}  # fmt: skip
#: What <limits.h> defines, for a 64-bit Linux.
_INTEGER_LIMITS = {
    "CHAR_BIT": "8", "SCHAR_MIN": "(-128)", "SCHAR_MAX": "127", "UCHAR_MAX": "255", "CHAR_MIN": "(-128)",
    "CHAR_MAX": "127", "SHRT_MIN": "(-32768)", "SHRT_MAX": "32767", "USHRT_MAX": "65535",
    "INT_MIN": "(-2147483647 - 1)", "INT_MAX": "2147483647", "UINT_MAX": "4294967295U",
    "LONG_MIN": "(-9223372036854775807L - 1L)", "LONG_MAX": "9223372036854775807L",
    "ULONG_MAX": "18446744073709551615UL", "LLONG_MIN": "(-9223372036854775807LL - 1LL)",
    "LLONG_MAX": "9223372036854775807LL", "ULLONG_MAX": "18446744073709551615ULL",
}  # fmt: skip
#: The constants of <math.h> on POSIX systems.
_MATH_CONSTANTS = {
    "M_E": "2.7182818284590452354", "M_LOG2E": "1.4426950408889634074",
    "M_LOG10E": "0.43429448190325182765", "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402", "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923", "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154", "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390", "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
}  # fmt: skip


def _shim(name: str) -> str:
    """A header that brings libcu++'s of the same name into `std`, where this release of it has one."""
    return (
        f"#pragma once\n#if __has_include(<cuda/std/{name}>)\n#include <cuda/std/{name}>\n#endif\n{_INTO_STD}"
    )


def _defined(values: dict[str, str]) -> str:
    return "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in values.items())


_FLOAT = _shim("cfloat") + _defined(_FLOAT_LIMITS)
_LIMITS = _shim("climits") + _defined(_INTEGER_LIMITS)
_MATH = _shim("cmath") + _defined(_MATH_CONSTANTS)
_STDIO = "#pragma once\nnamespace std { using ::printf; }\n#ifndef EOF\n#define EOF (-1)\n#endif\n"
_STRING = _shim("cstring")
#: CUB as far as a kernel uses it: what blocks, warps and threads do together. The rest launches kernels.
_CUB = "#pragma once\n" + "".join(
    f"#if __has_include(<cub/{name}.cuh>)\n#include <cub/{name}.cuh>\n#endif\n"
    for name in (
        "util_type", "util_ptx", "thread/thread_operators", "thread/thread_load", "thread/thread_store",
        "thread/thread_reduce", "thread/thread_scan", "warp/warp_reduce", "warp/warp_scan",
        "warp/warp_exchange", "warp/warp_load", "warp/warp_store", "warp/warp_merge_sort",
        "block/block_reduce", "block/block_scan", "block/block_load", "block/block_store",
        "block/block_exchange", "block/block_radix_sort", "block/block_radix_rank",
        "block/block_merge_sort", "block/block_histogram", "block/block_discontinuity",
        "block/block_adjacent_difference", "block/block_shuffle", "block/block_run_length_decode",
        "grid/grid_even_share", "grid/grid_mapping", "grid/grid_queue",
        "iterator/cache_modified_input_iterator",
    )
)  # fmt: skip


def _tensor_map_enumerations() -> str:
    """The enumerations of cuda.h that describe tensor maps."""
    return "".join(
        f"enum {name} {{ " + ", ".join(f"{member} = {number}" for member, number in members.items()) + " };\n"
        for name, members in DRIVER_ENUMERATIONS.items()
    )


#: The headers that are given to NVRTC, by name.
STANDARD_HEADERS = {
    **{name: _shim(name) for name in _STANDARD},
    **{f"{name}.h": _shim(f"c{name}") for name in _C_HEADERS},
    "algorithm": _ALGORITHM,
    **dict.fromkeys(("cfloat", "float.h"), _FLOAT),
    **dict.fromkeys(("climits", "limits.h"), _LIMITS),
    **dict.fromkeys(("cmath", "math.h"), _MATH),
    **dict.fromkeys(("cstdio", "stdio.h"), _STDIO),
    **dict.fromkeys(("cstring", "string.h", "memory.h"), _STRING),
    "cub/cub.cuh": _CUB,
}

#: Thrust has functions for the host alone, which NVRTC refuses; its types are the same without them. Inside a
#: kernel its algorithms run one after the other (thrust::seq): of its systems the plain one is enough, which
#: launches nothing. What it takes from the host's library is named here; nothing can be thrown in a kernel.
THRUST_PRELUDE = (
    """#undef __host__
#define __host__
#ifndef THRUST_DEVICE_SYSTEM
#define THRUST_DEVICE_SYSTEM 4
#endif
#define throw (void)
#include <cuda/std/utility>
#include <cuda/std/type_traits>
#include <cuda/std/iterator>
"""
    + _INTO_STD
    + """namespace std {
template <class I> struct iterator_traits : cuda::std::iterator_traits<I> {};
template <class T> class allocator { public: using value_type = T; };
template <class A> struct allocator_traits {
    using allocator_type = A; using value_type = typename A::value_type;
    using pointer = value_type*; using const_pointer = const value_type*;
    using void_pointer = void*; using const_void_pointer = const void*;
    using difference_type = long; using size_type = unsigned long;
    using propagate_on_container_copy_assignment = cuda::std::false_type;
    using propagate_on_container_move_assignment = cuda::std::false_type;
    using propagate_on_container_swap = cuda::std::false_type;
    using is_always_equal = cuda::std::true_type;
    template <class U> using rebind_alloc = allocator<U>;
    template <class U> using rebind_traits = allocator_traits<allocator<U>>;
};
struct exception { const char* what() const { return ""; } };
struct bad_alloc : exception {};
struct runtime_error : exception { runtime_error(const char*) {} };
struct string {
    string(const char* = nullptr) {} const char* c_str() const { return ""; }
    string& operator+=(const char*) { return *this; } string& operator+=(const string&) { return *this; }
};
}
namespace thrust { template <class, class, class, class> class pointer; }
namespace cuda { namespace std {
template <class E, class T, class R, class D>
struct iterator_traits<thrust::pointer<E, T, R, D>> : ::std::iterator_traits<thrust::pointer<E, T, R, D>> {};
} }
"""
)

PRELUDE_NAME = "lanewise_prelude.h"
#: What nvcc's implicit cuda_runtime.h brings from the host's headers, so that sources use it without a word.
#: (Diagnostic 47 is the redefinition of a macro: libcu++'s cmath has INFINITY and NAN as well.)
PRELUDE = (
    """#pragma once
#pragma nv_diag_suppress 47
#if !defined(__linux__) && !defined(_WIN32)
#define __linux__ 1
#endif
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef long long intptr_t; typedef unsigned long long uintptr_t;
typedef unsigned int uint; typedef unsigned short ushort; typedef unsigned long ulong; typedef long ssize_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
"""
    + _defined(_MATH_CONSTANTS)
    + _defined(_INTEGER_LIMITS)
)

#: Prepended where a source names CUtensorMap: nvcc's hosts have it from cuda.h. Where no toolkit's cuda.h is
#: installed, an empty header stands for it, and what device code may name is declared here.
TENSOR_MAP_PRELUDE = f"""#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#if !defined(CUDA_VERSION) || CUDA_VERSION < 12000
typedef struct CUtensorMap_st {{ alignas(64) unsigned long long opaque[16]; }} CUtensorMap;
{_tensor_map_enumerations()}#endif
"""
