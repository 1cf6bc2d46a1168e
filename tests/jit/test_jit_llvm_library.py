"""The two ways into LLVM, llvmlite's Python and its library called directly, do the same."""

import ctypes

import pytest

from lanewise.jit import llvm_library, machine_code


def test_both_ways_into_llvm_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = llvm_library._functions()
    if functions is None:
        pytest.skip("llvmlite's library is called through llvmlite alone here")
    image = machine_code.compile(
        "@n = global i64 7\ndeclare i64 @lanewise_next(i64)\n"
        "define i64 @f(i64 %x) { %y = call i64 @lanewise_next(i64 %x)\n ret i64 %y }"
    )
    following = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda number: number + 1)
    found = []
    for way in (lambda: functions, lambda: None):
        monkeypatch.setattr(llvm_library, "_called_directly", way)
        llvm_library.processor.cache_clear()
        llvm_library.add_symbol("lanewise_next", ctypes.cast(following, ctypes.c_void_p).value or 0)
        engine = llvm_library.Engine([image])
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.function("f"))
        number = ctypes.c_int64.from_address(engine.variable("n")).value
        found.append((llvm_library.processor(), call(41), number))
    assert found[0] == found[1]
    assert found[0][1:] == (42, 7)
