"""What goes wrong in kernels, and the message that each mistake gets: the line, the reason, what to do.

Each kernel below has one mistake; the line that a message must name is marked `# here`.
"""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw

MMA = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
OTHER = lw.instruction("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
SPARSE = lw.instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
TABLE = np.arange(4)


def macro_with_an_if(value):
    if value > 0:  # here
        return value
    return -value


@lw.kernel
def traced_if_in_a_macro(x: lw.Ptr[lw.f32]):
    x[0] = macro_with_an_if(x[0])  # here


@lw.kernel
def type_changes_in_a_loop(x: lw.Ptr[lw.f32], n: lw.i32):
    total = 0
    for i in lw.range(n):
        total = total * 1 + i
        total = x[i]  # here
    x[0] = total


@lw.kernel
def number_becomes_another_type_in_a_while(x: lw.Ptr[lw.i64], n: lw.i32):
    i = 0
    while i < n:
        i = x[0]  # here
    x[0] = i.to(lw.i64)


@lw.kernel
def shape_of_a_pointer(x: lw.Ptr[lw.f32]):
    x[0] = x.shape[0]  # here


@lw.kernel
def value_in_one_branch_only(x: lw.Ptr[lw.i32]):
    if x[0] > 0:
        found = 1
    x[1] = found  # here


@lw.kernel
def value_only_in_a_loop(x: lw.Ptr[lw.i32], n: lw.i32):
    for i in lw.range(n):
        last = i * 2
    x[1] = last  # here


@lw.kernel
def branches_of_two_types(x: lw.Ptr[lw.i32], y: lw.Ptr[lw.f32]):
    if x[0] > 0:  # noqa: SIM108 (the statement is what is tested)
        v = x[0]
    else:
        v = y[0]
    x[1] = v  # here


@lw.kernel
def fragment_of_another_instruction(x: lw.Ptr[lw.f32]):
    acc = MMA.zeros()
    a = OTHER.a.full(0)
    acc = MMA(a, MMA.b.full(0), acc)  # here
    x[0] = acc[0]


@lw.kernel
def too_few_registers(x: lw.Ptr[lw.f32]):
    s = lw.shared(lw.f16, (8, 8))
    a = lw.ldmatrix(s.ptr(lw.lane_id() % 8, 0), num=2)
    acc = MMA(a, MMA.b.full(0), MMA.zeros())  # here
    x[0] = acc[0]


@lw.kernel
def accumulator_of_numbers(x: lw.Ptr[lw.f32]):
    acc = MMA(MMA.a.full(0), MMA.b.full(0), 0.0)  # here
    x[0] = acc[0]


@lw.kernel
def sparse_without_metadata(x: lw.Ptr[lw.f32]):
    acc = SPARSE(SPARSE.a.full(0), SPARSE.b.full(0), SPARSE.zeros())  # here
    x[0] = acc[0]


@lw.kernel
def mixed_types(x: lw.Ptr[lw.f16], y: lw.Ptr[lw.f32]):
    y[0] = x[0] + y[0]  # here


@lw.kernel
def mixed_widths(x: lw.Ptr[lw.i64], n: lw.i32):
    x[0] = x[0] + n  # here


@lw.kernel
def float_meets_integer(x: lw.Ptr[lw.i32]):
    x[0] = x[0] * 0.5  # here


@lw.kernel
def number_too_large(x: lw.Ptr[lw.i32]):
    x[0] = x[0] & 0xFFFFFFFF  # here


@lw.kernel
def pairs_are_equal(x: lw.Ptr[lw.f16x2]):
    if x[0] == x[1]:  # here
        x[0] = x[1]


@lw.kernel
def true_division_of_integers(x: lw.Ptr[lw.i32]):
    x[0] = x[0] / 2  # here


@lw.kernel
def stored_as_another_type(x: lw.Ptr[lw.f16], y: lw.Ptr[lw.f32]):
    x[0] = y[0]  # here


@lw.kernel
def numpy_array_in_a_kernel(x: lw.Ptr[lw.i32]):
    x[0] = x[0] + TABLE  # here


@lw.kernel
def list_indexed_by_a_traced_value(x: lw.Ptr[lw.i32]):
    x[0] = [1, 2, 3][x[0]]  # here


@lw.kernel
def plain_range_over_a_parameter(x: lw.Ptr[lw.i32], n: lw.i32):
    for i in range(n):  # here
        x[i] = 0


@lw.kernel
def break_out_of_an_unrolled_loop(x: lw.Ptr[lw.i32]):
    for i in range(4):
        if x[i] == 0:
            break  # here
        x[i] = 1


@lw.kernel
def range_of_step_zero(x: lw.Ptr[lw.i32], n: lw.i32):
    for i in lw.range(0, n, 0):  # here
        x[i] = 0


@lw.kernel
def range_down_of_unsigned(x: lw.Ptr[lw.f32], n: lw.u32):
    for i in lw.range(n, 0, -1):  # here
        x[i] = 0.0


@lw.kernel
def range_that_wraps(x: lw.Ptr[lw.f32]):
    for i in lw.range(lw.u16(0), 65535, 2):  # here
        x[i.to(lw.i32)] = 0.0


@lw.kernel
def no_annotation(x: lw.Ptr[lw.i32], n):  # here
    x[0] = n


@lw.kernel
def annotation_of_no_type(x: lw.Ptr[lw.i32], n: int):  # here
    x[0] = n


@lw.kernel
def returns_a_value(x: lw.Ptr[lw.i32]):
    return x[0]  # here


@lw.kernel
def try_in_a_kernel(x: lw.Ptr[lw.i32]):
    try:  # noqa: SIM105 (the mistake)  # here
        x[0] = 1
    except ValueError:
        pass


@lw.kernel
def yield_in_a_kernel(x: lw.Ptr[lw.i32]):
    yield x[0]  # here


@lw.kernel
def negative_shape(x: lw.Ptr[lw.i32]):
    s = lw.shared(lw.f16, (16, -16))  # here
    x[0] = s[0, 0].to(lw.i32)


@lw.kernel
def too_much_shared_memory(x: lw.Ptr[lw.i32]):
    s = lw.shared(lw.f32, (256, 256))  # here
    x[0] = s[0, 0].to(lw.i32)


@lw.kernel
def too_many_coordinates(x: lw.Ptr[lw.f16]):
    s = lw.shared(lw.f16, (16, 16))
    x[0] = s[0, 0, 1]  # here


@lw.kernel
def ldmatrix_from_global_memory(x: lw.Ptr[lw.f16], y: lw.Ptr[lw.f32]):
    a = lw.ldmatrix(x, num=4)  # here
    y[0] = MMA(a, MMA.b.full(0))[0]


@lw.kernel
def copy_the_wrong_way(x: lw.Ptr[lw.f16]):
    s = lw.shared(lw.f16, (16, 16))
    lw.cp_async(x, s.ptr(0, 0), 16)  # here


@lw.kernel
def prefetch_an_odd_size(x: lw.Ptr[lw.f16, 16]):
    s = lw.shared(lw.f16, (16, 16))
    lw.cp_async(s.ptr(0, 0), x, 16, l2_bytes=96)  # here


@lw.kernel
def kernel_calls_kernel(x: lw.Ptr[lw.f16], y: lw.Ptr[lw.f32]):
    mixed_types(x, y)  # here


@lw.kernel
def variable_before_its_value(x: lw.Ptr[lw.i32]):
    x[0] = later  # noqa: F821 (the mistake)  # here
    later = 1
    x[1] = later


@lw.kernel
def traced_index_of_a_fragment(x: lw.Ptr[lw.f32], n: lw.i32):
    acc = MMA.zeros()
    x[0] = acc[n]  # here


@lw.kernel
def barrier_of_half_a_warp(x: lw.Ptr[lw.i32]):
    lw.barrier(1, 16)  # here
    x[0] = 1


@lw.kernel
def asm_without_an_operand(x: lw.Ptr[lw.u32]):
    x[0] = lw.asm("add.u32 {d}, {a}, {b};", d=lw.u32, a=x[0])  # here


@lw.kernel
def loop_changes_a_list_of_numbers(x: lw.Ptr[lw.i32], n: lw.i32):
    state = [x[0], 0]
    for _ in lw.range(n):
        state[1] = state[1] + 1  # here
    x[0] = state[1]


@lw.kernel
def lists_that_grow(x: lw.Ptr[lw.i32], n: lw.i32):
    found = [x[0]]
    for i in lw.range(n):
        found.append(x[i])  # here
    x[0] = found[-1]


class Holder:
    pass


@lw.kernel
def attribute_first_set_in_a_loop(x: lw.Ptr[lw.i32], n: lw.i32):
    held = Holder()
    for i in lw.range(n):
        held.last = i  # here
    x[0] = held.last


lambda_for_a_kernel = lw.kernel(lambda x: None)


@lw.kernel
def condition_that_is_a_pointer(x: lw.Ptr[lw.i32]):
    if x:  # here
        x[0] = 1


@lw.kernel
def python_max(x: lw.Ptr[lw.f32]):
    x[0] = max(x[0], 0.0)  # here


@lw.kernel
def value_in_one_branch_compared(x: lw.Ptr[lw.i32]):
    if x[0] > 0:
        found = 1
    if found == 1:  # here
        x[1] = 1


@lw.kernel
def membership_of_a_traced_value(x: lw.Ptr[lw.i32]):
    if x[0] in (1, 2):  # here
        x[1] = 1


@lw.kernel
def loop_of_the_kernel_in_a_comprehension(x: lw.Ptr[lw.i32], n: lw.i32):
    x[0] = sum([x[i] for i in lw.range(n)])  # here


@lw.kernel
def name_of_cuda(x: lw.Ptr[lw.i32]):
    x[lw.threadIdx.x] = 1  # here


@lw.kernel
def coordinates_without_a_dimension(x: lw.Ptr[lw.i32]):
    x[lw.thread_idx] = 1  # here


@lw.kernel
def length_of_a_pointer(x: lw.Ptr[lw.i32]):
    for i in range(len(x)):  # here
        x[i] = 0


@lw.kernel
def pointer_with_two_indices(x: lw.Ptr[lw.i32]):
    x[0, 1] = 1  # here


@lw.kernel
def coordinate_beyond_the_shape(x: lw.Ptr[lw.f16]):
    s = lw.shared(lw.f16, (16, 8))
    x[0] = s[0, 8]  # here


@lw.kernel
def mask_first(x: lw.Ptr[lw.i32]):
    x[0] = lw.shfl_xor_sync(0xFFFFFFFF, x[0], 1)  # here


@lw.kernel
def arithmetic_on_a_fragment(x: lw.Ptr[lw.f32]):
    acc = MMA.zeros() * 2.0  # here
    x[0] = acc[0]


@lw.kernel
def too_few_values_to_print(x: lw.Ptr[lw.i32]):
    lw.printf("%d %d\n", x[0])  # here


@lw.kernel
def integer_printed_as_a_float(x: lw.Ptr[lw.i32]):
    lw.printf("%f\n", x[0])  # here


@lw.kernel
def math_of_python(x: lw.Ptr[lw.f32]):
    x[0] = math.sqrt(x[0])  # here


@lw.kernel
def dictionary_of_python(x: lw.Ptr[lw.i32]):
    x[0] = {1: 2}[x[0]]  # here


@lw.kernel
def instruction_of_a_later_arch(x: lw.Ptr[lw.f16]):
    s = lw.shared(lw.f16, (8, 8))
    lw.stmatrix(s.ptr(lw.lane_id() % 8, 0), [lw.u32(0)])  # here
    x[0] = s[0, 0]


@lw.kernel
def name_that_ptx_has_not(x: lw.Ptr[lw.f32], π: lw.f32):  # here
    x[0] = π


#: Where the `if` of that function stands, which the message must name.
LINE = inspect.getsourcelines(macro_with_an_if)[1] + 1
MISTAKES = {
    traced_if_in_a_macro: f"macro_with_an_if (test_lang_mistakes.py:{LINE}): mark that function @lw.device",
    type_changes_in_a_loop: "total is i32 before the loop and becomes f32: a variable keeps its type",
    number_becomes_another_type_in_a_while: "i is i32 before the loop and becomes i64",
    shape_of_a_pointer: "a pointer has no shape: pass the sizes of the array as parameters",
    value_in_one_branch_only: "found has a value only where the branch up to line",
    value_only_in_a_loop: "last has a value only inside the loop of line",
    branches_of_two_types: "v is i32 in one branch and f32 in the other: convert one of them",
    fragment_of_another_instruction: "its elements are tf32, here f16. Store it to memory",
    too_few_registers: "ldmatrix.sync.aligned.m8n8.x2.shared.b16 has 2: load as many 8×8 matrices, num=4",
    accumulator_of_numbers: "takes a fragment or its registers",
    sparse_without_metadata: "is sparse: give metadata=",
    mixed_types: "types are never mixed silently; convert one, as in a.to(lw.f32)",
    mixed_widths: "convert one, as in b.to(lw.i64)",
    float_meets_integer: "the float 0.5 meets a value of type i32: convert that with .to(lw.f32)",
    number_too_large: "4294967295 does not fit into i32",
    pairs_are_equal: "`==` does not work on f16x2: lw.unpack(x) gives its two values",
    true_division_of_integers: "use // for integers, or convert with .to(lw.f32)",
    stored_as_another_type: "is stored through a pointer to f16: convert it with .to(lw.f16)",
    numpy_array_in_a_kernel: "pass the array as an lw.Ptr parameter",
    list_indexed_by_a_traced_value: "lw.local to index",
    plain_range_over_a_parameter: "Use lw.range for a loop",
    break_out_of_an_unrolled_loop: "write the loop as `for i in lw.range",
    range_of_step_zero: "the step is 0, and the loop would never end",
    range_down_of_unsigned: "lw.range counts in u32, which has no step of -1: convert the bounds",
    range_that_wraps: "after its last round the counter is 65536, which u16 does not have",
    no_annotation: "parameter n has no type: write n: lw.Ptr[lw.f16], lw.i32, lw.f32 or lw.Constexpr",
    annotation_of_no_type: "parameter n: <class 'int'> is no type of the kernel language; write lw.i32",
    returns_a_value: "a kernel returns nothing: store its results through a pointer parameter",
    try_in_a_kernel: "`try` does not work in a kernel",
    yield_in_a_kernel: "`yield` does not work in a kernel",
    negative_shape: "every extent is at least 1",
    too_much_shared_memory: "262,144 bytes of shared memory",
    too_many_coordinates: "3 coordinates do not fit shape (16, 16)",
    ldmatrix_from_global_memory: "takes a pointer to shared memory, not a pointer to f16 in global memory",
    prefetch_an_odd_size: "l2_bytes is 64, 128 or 256, not 96",
    copy_the_wrong_way: "the destination of lw.cp_async is a pointer to shared memory, not",
    kernel_calls_kernel: "mixed_types is a kernel, and kernels do not call each other: use an @lw.device",
    variable_before_its_value: "later has no value yet",
    traced_index_of_a_fragment: "the index of a fragment is a Python integer",
    barrier_of_half_a_warp: "a barrier counts threads in whole warps",
    asm_without_an_operand: "the text has {b}, and no b= is given",
    loop_changes_a_list_of_numbers: "must be a traced value before it, as in lw.i32(0)",
    lists_that_grow: "found is a list of 1 and a list of 2 before and after one round of the loop",
    attribute_first_set_in_a_loop: "held gets its attribute last inside a branch or loop",
    lambda_for_a_kernel: "a kernel is a function defined with `def`, not a lambda",
    condition_that_is_a_pointer: "a condition is a comparison or a number, not a pointer",
    python_max: "lw.max",
    name_that_ptx_has_not: "π is no name in PTX: use letters from a to z, digits and _",
    value_in_one_branch_compared: "found has a value only where the branch up to line",
    membership_of_a_traced_value: "Compare with ==, and use lw.where",
    loop_of_the_kernel_in_a_comprehension: "or use plain range, which unrolls",
    name_of_cuda: "no attribute 'threadIdx'; did you mean thread_idx?",
    coordinates_without_a_dimension: "take .x, .y or .z",
    length_of_a_pointer: "a pointer has no length: pass the number of elements as a parameter",
    pointer_with_two_indices: "the index of a pointer is one integer, not (0, 1): lw.tensor(p, layout)",
    coordinate_beyond_the_shape: "coordinate 8 is beyond the extent 8: coordinates are 0 to 7",
    mask_first: "takes the value first, and the mask by name",
    arithmetic_on_a_fragment: "is many values: take f[i], or f.map",
    too_few_values_to_print: "the text has 2 conversions, for 1 values",
    integer_printed_as_a_float: "%f does not print the i32 value: write %d",
    math_of_python: "lw.sqrt, lw.exp and other functions of lw take the place of Python's math",
    dictionary_of_python: "cannot look it up in a set or a dict",
    instruction_of_a_later_arch: "legal on sm_90 and later",
}


def marked_lines(kernel: lw.Kernel) -> set[int]:
    """The lines of a kernel that are marked, and of the macro that one of them calls."""
    marked = set()
    for function in (kernel.function, *((macro_with_an_if,) if kernel is traced_if_in_a_macro else ())):
        lines, first = inspect.getsourcelines(function)
        marked |= {first + n for n, line in enumerate(lines) if "# here" in line}
    return marked


@pytest.mark.parametrize("kernel", MISTAKES, ids=lambda kernel: kernel.name)
def test_mistake_is_named_with_its_line(kernel: lw.Kernel) -> None:
    with pytest.raises(lw.KernelError) as raised:
        kernel.ptx("sm_80")
    message = str(raised.value)
    assert MISTAKES[kernel] in message
    place = re.match(r"test_lang_mistakes\.py:(\d+): ", message)
    assert place is not None, message
    expected = marked_lines(kernel)
    assert int(place[1]) in expected or not expected, f"line {place[1]}, not {expected}: {message}"


@lw.kernel
def of_half(x: lw.Ptr[lw.f32], value: lw.f16):
    x[0] = value.to(lw.f32)


@lw.kernel
def plain(x: lw.Ptr[lw.f32], n: lw.i32, STEP: lw.Constexpr = 1):
    i = lw.thread_idx.x * STEP
    if i < n:
        x[i] = 1.0


X = np.zeros(4, np.float32)
LAUNCHES = [
    (lambda: plain(X, 4), "a kernel is launched with its grid and block: plain[grid, block]"),
    (lambda: plain[1](X, 4), "a launch is kernel[grid, block]"),
    (lambda: plain[1, 32](X), "n is missing"),
    (lambda: plain[1, 32](X, 4, 1, 2), "takes 3 arguments (x, n, STEP); 4 are given"),
    (lambda: plain[1, 32](X, 4, m=3), "has no parameter m; it has x, n, STEP"),
    (lambda: plain[1, 32](X, 4, n=3), "n is given twice"),
    (lambda: plain[1, 32](X.astype(np.float64), 4), "x is Ptr[f32] and takes arrays of dtype float32"),
    (lambda: plain[1, 32]([1.0], 4), "x is Ptr[f32] and takes an array, not [1.0]"),
    (
        lambda: plain[1, 32]([0.5] * 999, 4),
        "takes an array, not [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...]; np.array",
    ),
    (lambda: plain[1, 32](X, 4.5), "n is lw.i32 and takes an integer, not float 4.5"),
    (lambda: plain[1, 32](X, 4.0), "takes an integer, not float 4.0; int(…) makes 4 of it"),
    (lambda: plain[1, 32](X, 2**40), "does not fit"),
    (lambda: of_half[1, 32](X, 70000), "value is lw.f16, up to 65504: 70000 does not fit"),
    (lambda: lw.Ptr[np.float32], "takes a format such as lw.f16, not <class 'numpy.float32'>; write lw.f32"),
    (
        lambda: plain[1, 32](X, 4, STEP=[1]),
        "the value of a Constexpr must be hashable, a tuple and not a list",
    ),
    (lambda: plain.ptx("sm_90", N=3), "has no Constexpr parameter N; it has STEP"),
    (lambda: plain.ptx("sm_9"), "unknown arch"),
    (lambda: lw.thread_idx.x, "this works inside a kernel only"),
    (lambda: lw.f32(1.0), "this works inside a kernel only"),
    (lambda: MMA.zeros(), "this works inside a kernel only"),
    (lambda: lw.Ptr["f16"], "takes a format such as lw.f16"),
    (lambda: lw.Ptr[lw.f16, 3], "an alignment is a power of two"),
    (
        lambda: lw.kernel(threads=64)(plain.function),
        "takes max_threads, min_blocks, max_registers, cluster; not threads",
    ),
    (
        lambda: lw.kernel(max_threads=0)(plain.function),
        "max_threads= of @lw.kernel is an integer of at least 1",
    ),
    (lambda: lw.kernel(3), "goes on a function defined with `def`"),
]


@pytest.mark.parametrize("number", range(len(LAUNCHES)))
def test_wrong_launch_says_what_is_wrong(number: int) -> None:
    call, message = LAUNCHES[number]
    with pytest.raises(lw.LanewiseError, match=re.escape(message)):
        call()


def test_source_that_is_not_there() -> None:
    names = {"lw": lw}
    exec("@lw.kernel\ndef k(x: lw.Ptr[lw.f32]):\n    x[0] = 1.0\n", names)
    with pytest.raises(lw.KernelError, match="put it into a file"):
        names["k"].ptx("sm_80")


def test_a_mistake_does_not_spoil_the_next_trace() -> None:
    with pytest.raises(lw.KernelError):
        mixed_types.ptx("sm_80")
    assert ".entry plain" in plain.ptx("sm_80")


def test_there_are_many(tmp_path: Path) -> None:
    assert len(MISTAKES) + len(LAUNCHES) >= 25
