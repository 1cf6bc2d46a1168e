"""The annotations of kernels as type checkers and editors see them; nothing here exists when a program runs.

At run time `lw.f16` is a `Format`, and `lw.Ptr[lw.f16, 16]` an object that says what a parameter is. Inside a
kernel a parameter `x: lw.f16` is a traced number, and `p: lw.Ptr[lw.f16, 16]` a pointer. That is what a type
checker has to be told: here each format is the class of traced numbers, whose metaclass is a format as well,
so that `lw.f16.max`, `lw.shared(lw.f16, 8)` and `x: lw.f16` all have their meaning. One class serves all
formats: which of them a value has is checked when the kernel is traced.

Pyright reads `Ptr[...]` of a class with `__class_getitem__` as the class. mypy takes numbers as arguments of
nothing but Any, which `any_annotation.py` gives it; `MYPY` is a name that mypy takes to be true.
`tests/type_checkers/test_type_checker_names.py` holds this file to what is there at run time.
"""

from typing import TYPE_CHECKING, Any

MYPY = False

if TYPE_CHECKING:
    from lanewise.lang.trace.scalar import Scalar

    b1 = Scalar
    bf16 = Scalar
    bf16x2 = Scalar
    e2m1 = Scalar
    e2m1x2 = Scalar
    e2m3 = Scalar
    e2m3x2 = Scalar
    e3m2 = Scalar
    e3m2x2 = Scalar
    e4m3 = Scalar
    e4m3x2 = Scalar
    e5m2 = Scalar
    e5m2x2 = Scalar
    f16 = Scalar
    f16x2 = Scalar
    f32 = Scalar
    f64 = Scalar
    i8 = Scalar
    i16 = Scalar
    i32 = Scalar
    i64 = Scalar
    pred = Scalar
    s4 = Scalar
    s8 = Scalar
    s32 = Scalar
    tf32 = Scalar
    u4 = Scalar
    u8 = Scalar
    u16 = Scalar
    u32 = Scalar
    u64 = Scalar
    ue4m3 = Scalar
    ue8m0 = Scalar
    ue8m0x2 = Scalar

    Constexpr = Any

    if MYPY:
        from lanewise.lang.frontend.any_annotation import Array as Array
        from lanewise.lang.frontend.any_annotation import Ptr as Ptr
        from lanewise.lang.frontend.any_annotation import TensorMap as TensorMap
    else:
        from lanewise.lang.hopper.tma import TensorMap as TensorMap
        from lanewise.lang.memory.array import Array as Array
        from lanewise.lang.memory.pointer import Pointer as Ptr  # noqa: F401 (passed on)
