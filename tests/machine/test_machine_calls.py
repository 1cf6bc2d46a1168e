"""Calls: through registers and tables, of functions that call themselves, memory from stack and heap."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lanewise
from lanewise.machine import KernelFault
from lanewise.ptx import Module, parse

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

FACTORIAL = """
.func (.param .u64 result) factorial(.param .u32 n)
{
    .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ld.param.u32 %r0, [n];
    mov.u64 %rd0, 1;
    setp.lt.u32 %p, %r0, 2;
    @%p bra DONE;
    sub.u32 %r1, %r0, 1;
    {
        .param .u32 a; .param .u64 b;
        st.param.u32 [a], %r1;
        call (b), factorial, (a);
        ld.param.u64 %rd1, [b];
    }
    cvt.u64.u32 %rd2, %r0;
    mul.lo.u64 %rd0, %rd1, %rd2;
DONE:
    st.param.u64 [result], %rd0;
    ret;
}
"""


def entry(body: str, registers: str = "") -> str:
    return f"""
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; {registers}
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd1, %r0, 8, %rd0;
    {body}
    ret;
}}
"""


def run(module: Module, threads: int = 32) -> np.ndarray:
    out = np.zeros(threads, np.uint64)
    module["k"][1, threads](out)
    return out


def test_a_function_calls_itself_lanes_to_different_depths() -> None:
    body = """
    rem.u32 %r1, %r0, 17;
    { .param .u32 a; .param .u64 b; st.param.u32 [a], %r1; call (b), factorial, (a); ld.param.u64 %rd2, [b]; }
    st.global.u64 [%rd1], %rd2;
    """
    got = run(parse(HEADER + FACTORIAL + entry(body)), 64)
    assert got.tolist() == [math.factorial(tid % 17) for tid in range(64)]


def test_recursion_with_registers_as_parameters_swapped() -> None:
    """gcd(a, b) = gcd(b, a mod b): arguments are the function's own registers, in another order."""
    gcd = """
.func (.reg .u32 %result) gcd(.reg .u32 %a, .reg .u32 %b)
{
    .reg .pred %p; .reg .b32 %c;
    mov.u32 %result, %a;
    setp.eq.u32 %p, %b, 0;
    @%p ret;
    rem.u32 %a, %a, %b;
    call (%result), gcd, (%b, %a);
    ret;
}
"""
    body = """
    mul.lo.u32 %r1, %r0, 36;
    add.u32 %r2, %r0, 84;
    call (%r3), gcd, (%r1, %r2);
    cvt.u64.u32 %rd2, %r3;
    st.global.u64 [%rd1], %rd2;
    """
    got = run(parse(HEADER + gcd + entry(body)))
    assert got.tolist() == [math.gcd(tid * 36, tid + 84) for tid in range(32)]


def test_guarded_calls_of_functions_that_call_each_other() -> None:
    """even(n) and odd(n) by one another; some lanes do not call at all."""

    def one(name: str, other: str, at_zero: int) -> str:
        return f"""
.func (.reg .u32 %result) {name}(.reg .u32 %n)
{{
    .reg .pred %p; .reg .b32 %m;
    setp.ne.u32 %p, %n, 0;
    mov.u32 %result, {at_zero};
    sub.u32 %m, %n, 1;
    @%p call (%result), {other}, (%m);
    ret;
}}
"""

    declared = ".func (.reg .u32 %result) odd(.reg .u32 %n);\n"
    body = """
    setp.lt.u32 %p0, %r0, 24;
    mov.u32 %r1, 7;
    @%p0 call (%r1), even, (%r0);
    cvt.u64.u32 %rd2, %r1;
    st.global.u64 [%rd1], %rd2;
    """
    text = HEADER + declared + one("even", "odd", 1) + one("odd", "even", 0) + entry(body)
    assert run(parse(text)).tolist() == [1 - tid % 2 if tid < 24 else 7 for tid in range(32)]


def test_local_variables_of_every_activation_have_addresses_of_their_own() -> None:
    """Each level writes through the pointer that the level above passed: nothing may overlap."""
    walk = """
.func walk(.param .u64 above, .param .u32 n)
{
    .local .align 8 .b8 own[16];
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [above];
    ld.param.u32 %r0, [n];
    mov.u64 %rd1, own;
    cvta.local.u64 %rd1, %rd1;
    st.u32 [%rd1], 0;
    setp.eq.u32 %p, %r0, 0;
    @%p bra LAST;
    sub.u32 %r1, %r0, 1;
    {
        .param .u64 a; .param .u32 b;
        st.param.u64 [a], %rd1;
        st.param.u32 [b], %r1;
        call walk, (a, b);
    }
LAST:
    ld.local.u32 %r2, [own];
    mad.lo.u32 %r2, %r2, 10, %r0;
    st.u32 [%rd0], %r2;
    ret;
}
"""
    body = """
    cvta.to.global.u64 %rd2, %rd1;
    and.b32 %r1, %r0, 7;
    { .param .u64 a; .param .u32 b; st.param.u64 [a], %rd2; st.param.u32 [b], %r1; call walk, (a, b); }
    """

    def expected(n: int) -> int:
        return (0 if n == 0 else expected(n - 1)) * 10 + n

    assert run(parse(HEADER + walk + entry(body))).tolist() == [expected(tid & 7) for tid in range(32)]


ENDLESS = """
.func deep(.reg .u32 %n)
{
    .reg .b32 %m;
    add.u32 %m, %n, 1;
    call deep, (%m);
    ret;
}
"""


def test_a_stack_that_is_used_up_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="stack of 32768 bytes") as raised:
        run(parse(HEADER + ENDLESS + entry("call deep, (%r0);")))
    assert raised.value.kind == "stack"


OPERATIONS = "".join(
    f"""
.func (.param .u32 result) {name}(.param .u32 a, .param .u32 b)
{{
    .reg .b32 %r<3>;
    ld.param.u32 %r0, [a];
    ld.param.u32 %r1, [b];
    {name}{".lo" if name == "mul" else ""}.u32 %r2, %r0, %r1;
    st.param.u32 [result], %r2;
    ret;
}}
"""
    for name in ("add", "sub", "mul")
)
CALL = """
    { .param .u32 a; .param .u32 b; .param .u32 c;
      st.param.u32 [a], %r0; st.param.u32 [b], 3;
      call (c), %rd5, (a, b), KIND;
      ld.param.u32 %r3, [c]; }
    cvt.u64.u32 %rd6, %r3;
    st.global.u64 [%rd1], %rd6;
    bra END;
KIND: .callprototype (.param .u32 _) _ (.param .u32 _, .param .u32 _);
END:
"""


def results() -> list[int]:
    operations = (lambda a: a + 3, lambda a: (a - 3) % 2**32, lambda a: a * 3)
    return [operations[tid % 3](tid) for tid in range(32)]


def test_every_lane_calls_the_function_whose_address_it_holds() -> None:
    body = f"""
    mov.u64 %rd2, add;
    mov.u64 %rd3, sub;
    mov.u64 %rd4, mul;
    rem.u32 %r1, %r0, 3;
    setp.eq.u32 %p0, %r1, 0;
    setp.eq.u32 %p1, %r1, 1;
    selp.b64 %rd5, %rd3, %rd4, %p1;
    selp.b64 %rd5, %rd2, %rd5, %p0;
    {CALL}
    """
    assert run(parse(HEADER + OPERATIONS + entry(body))).tolist() == results()


def test_functions_from_a_table_in_global_memory() -> None:
    table = ".global .align 8 .u64 table[3] = {add, sub, mul};\n"
    body = f"""
    rem.u32 %r1, %r0, 3;
    mov.u64 %rd2, table;
    mad.wide.u32 %rd2, %r1, 8, %rd2;
    ld.global.u64 %rd5, [%rd2];
    {CALL}
    """
    assert run(parse(HEADER + OPERATIONS + table + entry(body))).tolist() == results()


def test_a_list_of_targets_and_a_guard() -> None:
    body = """
    mov.u64 %rd5, mul;
    setp.lt.u32 %p0, %r0, 16;
    mov.u32 %r3, 99;
    { .param .u32 a; .param .u32 b; .param .u32 c;
      st.param.u32 [a], %r0; st.param.u32 [b], 3; st.param.u32 [c], 99;
      @%p0 call (c), %rd5, (a, b), LIST;
      ld.param.u32 %r3, [c]; }
    cvt.u64.u32 %rd6, %r3;
    st.global.u64 [%rd1], %rd6;
    bra END;
LIST: .calltargets add, mul;
END:
    """
    expected = [tid * 3 if tid < 16 else 99 for tid in range(32)]
    assert run(parse(HEADER + OPERATIONS + entry(body))).tolist() == expected


def test_recursion_through_a_register() -> None:
    """A function that is passed its own address."""
    down = """
.func (.param .u32 result) down(.param .u64 self, .param .u32 n)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [self];
    ld.param.u32 %r0, [n];
    mov.u32 %r2, 0;
    setp.eq.u32 %p, %r0, 0;
    @%p bra DONE;
    sub.u32 %r1, %r0, 1;
    { .param .u64 a; .param .u32 b; .param .u32 c;
      st.param.u64 [a], %rd0; st.param.u32 [b], %r1;
      call (c), %rd0, (a, b), KIND;
      ld.param.u32 %r2, [c]; }
    add.u32 %r2, %r2, %r0;
DONE:
    st.param.u32 [result], %r2;
    ret;
KIND: .callprototype (.param .u32 _) _ (.param .u64 _, .param .u32 _);
}
"""
    body = """
    mov.u64 %rd2, down;
    { .param .u64 a; .param .u32 b; .param .u32 c;
      st.param.u64 [a], %rd2; st.param.u32 [b], %r0;
      call (c), down, (a, b);
      ld.param.u32 %r2, [c]; }
    cvt.u64.u32 %rd3, %r2;
    st.global.u64 [%rd1], %rd3;
    """
    assert run(parse(HEADER + down + entry(body))).tolist() == [n * (n + 1) // 2 for n in range(32)]


def test_a_register_that_holds_no_function() -> None:
    with pytest.raises(KernelFault, match="holds no function") as raised:
        run(parse(HEADER + OPERATIONS + entry(f"mov.u64 %rd2, add; mov.u64 %rd5, 12345; {CALL}")))
    assert raised.value.kind == "bad call"
    # Nor can it where no function has that prototype; the kernel runs as long as nobody calls.
    with pytest.raises(KernelFault, match="holds no function"):
        run(parse(HEADER + entry(f"mov.u64 %rd5, 12345; {CALL}")))
    silent = "setp.eq.u32 %p1, %r0, 99; @!%p1 bra SILENT; mov.u64 %rd5, 0;"
    run(parse(HEADER + entry(f"{silent} {CALL} SILENT:")))


def test_memory_from_the_stack() -> None:
    """alloca in a loop, freed by stackrestore: what lies there stays apart, and does not grow."""
    body = """
    mov.u32 %r1, 0;
    mov.u64 %rd9, 0;
LOOP:
    stacksave.u64 %rd2;
    mov.u64 %rd3, 1000;
    alloca.u64 %rd4, %rd3, 32;
    alloca.u64 %rd5, 8;
    st.local.u32 [%rd4], %r1;
    st.local.u32 [%rd5], %r0;
    and.b64 %rd6, %rd4, 31;
    add.u64 %rd9, %rd9, %rd6;
    ld.local.u32 %r3, [%rd4];
    ld.local.u32 %r4, [%rd5];
    mad.wide.u32 %rd9, %r3, %r4, %rd9;
    stackrestore.u64 %rd2;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p0, %r1, 100;
    @%p0 bra LOOP;
    st.global.u64 [%rd1], %rd9;
    """
    module = parse(HEADER + entry(body))
    assert run(module).tolist() == [tid * 4950 for tid in range(32)]
    with pytest.raises(KernelFault, match="stack"):
        run(parse(HEADER + entry("mov.u64 %rd3, 40000; alloca.u64 %rd4, %rd3;")))


def test_malloc_and_free() -> None:
    declared = """
.extern .func (.param .b64 pointer) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
"""
    take = """
    { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd3; call (b), malloc, (a); ld.param.b64 %rd2, [b]; }
    """
    body = f"""
    mov.u64 %rd3, 16;
    {take}
    st.u32 [%rd2], %r0;
    st.u32 [%rd2+12], %r0;
    bar.sync 0;
    ld.u32 %r1, [%rd2];
    ld.u32 %r2, [%rd2+12];
    add.u32 %r1, %r1, %r2;
    cvt.u64.u32 %rd4, %r1;
    st.global.u64 [%rd1], %rd4;
    {{ .param .b64 a; st.param.b64 [a], %rd2; call free, (a); }}
    mov.u64 %rd3, 99999999;
    {take}
    setp.ne.u64 %p0, %rd2, 0;
    @%p0 trap;
    """
    module = parse(HEADER + declared + entry(body))
    assert run(module).tolist() == [2 * tid for tid in range(32)]
    with ThreadPoolExecutor(1) as pool, pytest.raises(lanewise.LanewiseError, match="share a heap"):
        module["k"][1, 32](np.zeros(32, np.uint64), executor=pool)
    twice = "{ .param .b64 a; st.param.b64 [a], 1234; call free, (a); }"
    with pytest.raises(KernelFault, match="which malloc did not return") as raised:
        run(parse(HEADER + declared + entry(twice)))
    assert raised.value.kind == "heap"


def test_functions_from_cuda() -> None:
    """Virtual functions, function pointers, recursion and new, as NVRTC compiles them."""
    source = """
struct Shape { __device__ virtual int area(int n) const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape { __device__ int area(int n) const override { return n * n; } };
struct Strip : Shape {
    int w;
    __device__ Strip(int w) : w(w) {}
    __device__ int area(int n) const override { return w * n; }
};
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ int twice(int n) { return 2 * n; }
__device__ __noinline__ int square(int n) { return n * n; }
extern "C" __global__ void k(unsigned long long *out) {
    int i = threadIdx.x;
    int (*const table[])(int) = {fib, twice, square};
    Shape *shape = i & 1 ? (Shape *)new Strip(3) : (Shape *)new Square;
    out[i] = table[i % 3](i % 10) + 1000 * shape->area(i);
    delete shape;
}
"""
    try:
        module = lanewise.cuda(source, arch="sm_80")
    except lanewise.LanewiseError as error:
        pytest.skip(str(error).splitlines()[0])

    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    functions = (fib, lambda n: 2 * n, lambda n: n * n)
    expected = [functions[i % 3](i % 10) + 1000 * (3 * i if i & 1 else i * i) for i in range(32)]
    assert run(module).tolist() == expected
