"""LLVM IR as text: LLVM reads what is written, and types that do not fit are refused where they meet."""

import gc
import weakref

import pytest
from llvmlite import binding as llvm

from lanewise.jit import ir


def function(operands: list[ir.Type], result: ir.Type = ir.LONG) -> tuple[ir.Function, ir.IRBuilder]:
    made = ir.Function(ir.Module("test"), ir.FunctionType(result, operands), "f")
    return made, ir.IRBuilder(made.append_basic_block("entry"))


def read(module: ir.Module) -> str:
    """The module as LLVM writes it, once it has found it to be right."""
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return str(parsed)


@pytest.mark.usefixtures("only_new_objects")
def test_equal_types_are_one_object() -> None:
    assert ir.IntType(32) is ir.WORD
    assert ir.VectorType(ir.WORD, 8) is ir.VectorType(ir.WORD, 8)
    assert ir.ArrayType(ir.WORD, 8) is ir.ArrayType(ir.WORD, 8) is not ir.ArrayType(ir.WORD, 9)
    assert ir.LONG.as_pointer() is ir.LONG.as_pointer() is not ir.WORD.as_pointer()
    assert ir.FunctionType(ir.WORD, [ir.LONG]) is ir.FunctionType(ir.WORD, (ir.LONG,))


@pytest.mark.usefixtures("only_new_objects")
def test_array_types_go_with_the_code_that_used_them() -> None:
    types = [weakref.ref(ir.ArrayType(ir.WORD, count).as_pointer()) for count in range(5000, 5100)]
    gc.collect()
    assert not any(each() for each in types)


@pytest.mark.parametrize(
    "type, value, text",
    [
        (ir.WORD, -3, "i32 -3"),
        (ir.BOOL, 1, "i1 true"),
        (ir.FloatType(), 0.1, "float 0x3FB99999A0000000"),
        (ir.VectorType(ir.WORD, 2), [4, 4], "<2 x i32> splat (i32 4)"),
        (ir.VectorType(ir.WORD, 2), [4, 5], "<2 x i32> <i32 4, i32 5>"),
        (ir.ArrayType(ir.WORD, 2), [4, 5], "[2 x i32] [i32 4, i32 5]"),
        (ir.LONG, ir.Undefined, "i64 undef"),
    ],
)
def test_constants(type: ir.Type, value: ir.Content, text: str) -> None:
    made = ir.Constant(type, value)
    assert str(made) == text
    module = ir.Module()
    ir.GlobalVariable(module, type, "data").initializer = made
    assert "@data = global" in read(module)


def test_a_function_with_a_loop_and_a_condition() -> None:
    made, builder = function([ir.LONG])
    (count,) = made.args
    head, body, after = (made.append_basic_block(name) for name in ("head", "body", "after"))
    entry = builder.block
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(ir.LONG)
    index.add_incoming(ir.Constant(ir.LONG, 0), entry)
    builder.cbranch(builder.icmp_signed("<", index, count), body, after)
    builder.position_at_end(body)
    with builder.if_then(builder.icmp_unsigned("==", index, ir.Constant(ir.LONG, 7))):
        builder.ret(index)
    index.add_incoming(builder.add(index, ir.Constant(ir.LONG, 1)), builder.block)
    builder.branch(head, loop=True)
    builder.position_at_end(after)
    builder.ret(count)
    assert "phi i64" in read(made.module)


def test_types_that_do_not_fit_are_refused() -> None:
    made, builder = function([ir.LONG, ir.WORD])
    long, word = made.args
    for wrong in (
        lambda: builder.add(long, word),
        lambda: builder.icmp_signed("<", long, word),
        lambda: builder.select(builder.icmp_signed("<", long, long), long, word),
        lambda: builder.call(made, [word, long]),
    ):
        with pytest.raises(TypeError):
            wrong()  # type: ignore[no-untyped-call]  # one of several lambdas
    builder.ret(long)
    with pytest.raises(AssertionError, match="nothing can follow the end"):
        builder.ret(long)
