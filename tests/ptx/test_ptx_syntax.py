"""Every construct of the syntax: what it is read as, that it prints as itself, and what ptxas says of it."""

from typing import Any

import pytest

from lanewise.ptx import (
    Address,
    Alias,
    BlockEnd,
    BlockStart,
    Data,
    Dwarf,
    Element,
    Group,
    Immediate,
    Index,
    Initialiser,
    Label,
    Limit,
    Loc,
    Module,
    Name,
    Offset,
    Operation,
    Pair,
    Pragma,
    Prototype,
    PtxSyntaxError,
    Section,
    Setting,
    SymbolAddress,
    Targets,
    Unary,
    Variable,
    Vector,
    constant,
    parse,
    ptxas,
)
from lanewise.ptx.tools.toolkit import find_tools

needs_ptxas = pytest.mark.skipif(not find_tools("ptxas"), reason="ptxas is not installed (extra `cuda`)")
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
REGISTERS = """
.global .u32 arr[8];
.shared .align 16 .b8 tile[256];
.visible .entry k(.param .u64 p)
{
    .reg .b32 r<9>; .reg .b64 d<9>; .reg .f32 f<9>; .reg .f64 g<4>; .reg .pred p<9>; .reg .v4 .f32 v;
"""


def read(text: str) -> Module:
    """The module, after the law of the round trip: printed and read again, it is the same."""
    module = parse(text)
    again = parse(str(module))
    assert again == module
    assert str(again) == str(module)
    return module


def body(text: str) -> list[Any]:
    return list(read(f"{HEADER}.entry k()\n{{\n{text}\n}}")["k"].body)


def operation(text: str) -> Operation:
    found = body(text)[0]
    assert isinstance(found, Operation)
    return found


def operand(text: str) -> object:
    return operation(f"mov.b64 x, {text};").operands[1]


# header -------------------------------------------------------------------------------------------------


def test_header() -> None:
    module = read(".version 8.7\n.target sm_100a, texmode_independent, debug\n.address_size 64\n")
    assert (module.version, module.target, module.address_size) == ("8.7", "sm_100a", 64)
    assert module.target_options == ("texmode_independent", "debug")
    assert read(".version 9.0\n.target sm_80").says_address_size is False
    assert read(".version 6.0 .target sm_70 .address_size 32").address_size == 32


def test_byte_order_mark_and_final_nul_are_no_text() -> None:
    assert parse("\ufeff" + HEADER) == parse(HEADER + "\0") == parse(HEADER)


# operands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%r1", Name("%r1")),
        ("_", Name("_")),
        ("$L__BB0_1", Name("$L__BB0_1")),
        ("%tid.x", Element("%tid", "x")),
        ("%r1.b0", Element("%r1", "b0")),
        ("%r1.h1", Element("%r1", "h1")),
        ("!%p1", Unary("!", Name("%p1"))),
        ("-%r1", Unary("-", Name("%r1"))),
        ("%p1|%p2", Pair(Name("%p1"), Name("%p2"))),
        ("%r1 | _", Pair(Name("%r1"), Name("_"))),
        ("{%f1, _, v.x}", Vector((Name("%f1"), Name("_"), Element("v", "x")))),
        ("{}", Vector(())),
        ("table+16", Offset("table", 16)),
        ("table + -4 + 2*8", Offset("table", 12)),
        ("table[3]", Index("table", "", 3)),
        ("table[%r1]", Index("table", "%r1", 0)),
        ("table[%r1 + 2]", Index("table", "%r1", 2)),
        ("[%rd1]", Address(Name("%rd1"))),
        ("[ %rd1 + 16 ]", Address(Name("%rd1"), 16)),
        ("[%rd1+-16]", Address(Name("%rd1"), -16)),
        ("[table+(1<<4)]", Address(Name("table"), 16)),
        ("[map, {%r1, %r2}]", Address(Name("map"), 0, (Vector((Name("%r1"), Name("%r2"))),))),
        (
            "[tex, smp, {%f1}]",
            Address(Name("tex"), 0, (Name("smp"), Vector((Name("%f1"),)))),
        ),
    ],
)
def test_operands(text: str, expected: object) -> None:
    assert operand(text) == expected


def test_immediate_address() -> None:
    found = operand("[0x10]")
    assert isinstance(found, Address) and isinstance(found.base, Immediate) and found.base.value == 16


@pytest.mark.parametrize(
    ("text", "type_name", "value"),
    [
        ("0", "s64", 0),
        ("42", "s64", 42),
        ("42U", "u64", 42),
        ("0x1F", "s64", 31),
        ("0X1fU", "u64", 31),
        ("017", "s64", 15),
        ("0b101", "s64", 5),
        ("0B101U", "u64", 5),
        ("0xFFFFFFFFFFFFFFFF", "u64", 2**64 - 1),
        ("9223372036854775807", "s64", 2**63 - 1),
        ("-1", "s64", -1),
        ("- 5", "s64", -5),
        ("0f3F800000", "f32", 1.0),
        ("0F7F800000", "f32", float("inf")),
        ("0d3FF8000000000000", "f64", 1.5),
        ("1.5", "f64", 1.5),
        (".5", "f64", 0.5),
        ("2.", "f64", 2.0),
        ("1e3", "f64", 1000.0),
        ("1.5E-3", "f64", 0.0015),
        ("-1.5", "f64", -1.5),
        ("WARP_SZ", "s64", 32),
        ("(1 << 4) | 3", "s64", 19),
        ("1 ? 2 : 3", "s64", 2),
        ("(.u64)-1", "u64", 2**64 - 1),
    ],
)
def test_literals(text: str, type_name: str, value: float) -> None:
    found = operand(text)
    assert isinstance(found, Immediate)
    assert (found.type, found.value, str(found)) == (type_name, value, text)
    assert constant(text) == found


def test_bits_of_a_nan_are_kept() -> None:
    assert constant("0f7FA00001").bits == 0x7FA00001
    assert constant("0d7FF0000000000001").bits == 0x7FF0000000000001


# instructions -------------------------------------------------------------------------------------------


def test_modifiers_keep_their_order_and_may_stand_apart() -> None:
    found = operation(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [a], [m, {x, y}], [b];"
    )
    assert found.opcode == "cp"
    assert found.modifiers[-1] == "mbarrier::complete_tx::bytes"
    apart = operation("add\n  .sat .s32 a, b, c;")
    assert apart == operation("add.sat.s32 a, b, c;")


def test_guards() -> None:
    assert operation("@p bra L;").guard.name == "p"
    assert operation("@!%p1 bra L;").guard.negated
    assert operation("@ ! %p1 bra L;") == operation("@!%p1 bra L;")
    assert operation("ret;").guard is None


@pytest.mark.parametrize(
    ("text", "results", "target", "arguments", "prototype"),
    [
        ("call f;", (), "f", (), ""),
        ("call.uni f, ();", (), "f", (), ""),
        ("call (r), f;", ("r",), "f", (), ""),
        ("call.uni (r), f, (a, 5, 1+1);", ("r",), "f", ("a", "5", "1+1"), ""),
        ("call (r), %rd1, (a), proto;", ("r",), "%rd1", ("a",), "proto"),
        ("call %rd1, (a), proto;", (), "%rd1", ("a",), "proto"),
        ("call (_), f, (a);", ("_",), "f", ("a",), ""),
    ],
)
def test_calls(
    text: str, results: tuple[str, ...], target: str, arguments: tuple[str, ...], prototype: str
) -> None:
    call = operation(text).call()
    assert tuple(map(str, call.results)) == results
    assert tuple(map(str, call.arguments)) == arguments
    assert (call.target, call.prototype) == (target, prototype)


def test_parentheses_are_groups_in_calls_alone() -> None:
    assert operation("call f, (5);").operands[1] == Group((constant("5"),))
    assert operation("mov.u32 r, (5);").operands[1] == constant("5")


def test_blocks_and_labels() -> None:
    statements = body("A: B:\n{ .reg .b32 x; { C: bra C; } } A$1: ret;;")
    kinds = [type(statement) for statement in statements]
    assert kinds == [
        Label, Label, BlockStart, Variable, BlockStart, Label, Operation, BlockEnd, BlockEnd, Label,
        Operation,
    ]  # fmt: skip
    assert [statement.scope for statement in statements] == [0, 0, 1, 1, 2, 2, 2, 2, 1, 0, 0]


def test_labels_of_a_block_are_its_own() -> None:
    function = read(f"{HEADER}.entry k() {{ {{ L: bra L; }} {{ L: bra L; }} bra L; L: ret; }}")["k"].function
    targets = [function.label("L", branch.scope) for branch in function.operations if branch.opcode == "bra"]
    assert [function.body[place].line for place in targets] == [4, 4, 4]  # type: ignore[index]  # a kernel has a body
    assert len(set(targets)) == 3


def test_names_resolve_to_the_innermost_declaration() -> None:
    function = read(
        f"{HEADER}.entry k(.param .u64 q) {{ .reg .b32 %r<12>; .reg .b64 x, %r1<5>;"
        " { .reg .b16 x; ret; } }"
    )["k"].function
    inside = function.operations[0].scope
    assert function.variable("x", inside).type == "b16"
    assert function.variable("x").type == "b64"
    assert function.variable("%r11", inside).type == "b32"
    assert function.variable("%r13").type == "b64"  # %r1<5> is %r10 … %r14, and %r<12> has no %r13
    assert function.variable("q").space == "param"
    beside = read(f"{HEADER}.entry k() {{ .reg .b32 %r<2>; .reg .b64 %r; ret; }}")["k"].function
    assert (beside.variable("%r").type, beside.variable("%r1").type) == ("b64", "b32")
    for absent in ("%r15", "%r", "%r01", "y", "%r99999999999999999999"):
        assert function.variable(absent) is None


def test_indirect_targets() -> None:
    statements = body(
        "t: .branchtargets A, N<3>; c: .calltargets f, g;"
        " p: .callprototype (.param .align 8 .b8 _[12]) _ (.param .b32 _) .abi_preserve 4;"
        " n: .callprototype _ .noreturn; e: .callprototype ()_ (.reg .b32 x);"
    )
    found = [statement for statement in statements if not isinstance(statement, Label)]
    assert found[0] == Targets("branchtargets", ("A", "N0", "N1", "N2"))
    assert found[1] == Targets("calltargets", ("f", "g"))
    assert isinstance(found[2], Prototype) and found[2].returns[0].dims == (12,)
    assert isinstance(found[3], Prototype) and found[3].limits == (Limit("noreturn"),)


# variables ----------------------------------------------------------------------------------------------


def variable(text: str) -> Variable:
    (found,) = read(HEADER + text).variables.values()
    return found


def test_ranges_and_lists_of_registers() -> None:
    a, b, c = body(".reg .v2 .b32 %a<4>, b, c<0x2>;")
    assert (a.name, a.count, a.vector) == ("%a", 4, 2)
    assert list(a.names()) == ["%a0", "%a1", "%a2", "%a3"]
    assert (b.name, b.count) == ("b", -1)
    assert list(c.names()) == ["c0", "c1"]
    assert body(".reg.b32 x;") == body(".reg .b32 x;")


def test_arrays_alignment_and_sizes() -> None:
    found = variable(".visible .shared .align 16 .v4 .f32 t[2][3];")
    assert (found.dims, found.size, found.alignment, found.element_size) == ((2, 3), 96, 16, 16)
    assert variable(".extern .shared .align 16 .b8 s[];").size == 0
    assert variable(".global .u16 x[] = {1, 2, 3};").size == 6
    assert variable(".global .f16x2 h;").size == 4
    assert variable(".global .b128 w;").size == 16


def test_initial_values() -> None:
    nested = variable(".global .u32 a[2][2] = {{1, 2}, {3+1, -5}};").initialiser
    assert isinstance(nested, Initialiser)
    assert [[item.value for item in row.items] for row in nested.items] == [[1, 2], [4, -5]]
    found = variable(".const .u64 a[5] = {x, x+8, generic(x), generic(x)+8, 0xFF00(x+4)};").initialiser
    assert found.items == (
        SymbolAddress("x"),
        SymbolAddress("x", 8),
        SymbolAddress("x", generic=True),
        SymbolAddress("x", 8, True),
        SymbolAddress("x", 4, mask=0xFF00),
    )
    assert variable(".global .u64 p = generic(x)+4;").initialiser == SymbolAddress("x", 4, True)
    assert variable(".global .f32 f = -1.5;").initialiser.value == -1.5
    assert variable(".global .u32 e[4] = {};").initialiser == Initialiser(())
    sampler = variable(".global .samplerref s = { addr_mode_0 = clamp_to_border, normalized_coords = 1 };")
    assert sampler.initialiser.items[0] == Setting("addr_mode_0", "clamp_to_border")


def test_attributes_and_linking() -> None:
    found = variable(".visible .global .attribute(.managed, .unified(1, 0x2)) .align 4 .s32 g;")
    assert [(part.name, part.arguments) for part in found.attributes] == [
        ("managed", ()),
        ("unified", (1, 2)),
    ]
    for linking in ("visible", "extern", "weak", "common"):
        assert variable(f".{linking} .global .u32 x;").linking == linking


@pytest.mark.parametrize("space", ["sreg", "const", "global", "local", "param", "shared", "tex", "reg"])
def test_state_spaces(space: str) -> None:
    assert variable(f".{space} .u32 x;").space == space


# functions ----------------------------------------------------------------------------------------------


def test_parameters() -> None:
    entry = read(
        HEADER
        + ".entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr b, .param .align 64 .b8 c[128],"
        " .param .texref t) { ret; }"
    )["k"]
    a, b, c, t = entry.parameters
    assert (a.pointer.space, a.pointer.align, b.pointer.space) == ("global", 16, "")
    assert (c.dims, c.align, c.size, t.type) == ((128,), 64, 128, "texref")


def test_declarations_definitions_and_limits() -> None:
    module = read(
        HEADER
        + ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
        + ".func f; .weak .func (.reg .b32 r) f (.reg .b32 a, .reg .pred p) { ret; }\n"
        + ".func .attribute(.unified(1, 2)) u () .abi_preserve 8 .abi_preserve_control 2 { ret; }\n"
        + ".visible .func die (.param .b8 all[]) .noreturn { trap; }\n"
        + ".alias other, die;\n"
        + ".entry k .maxntid 16, 16, 4 .minnctapersm 2 .maxnreg 64 { ret; }\n"
        + '.entry c () .reqntid 128 .reqnctapercluster 2, 1 .blocksareclusters .pragma "nounroll"; { ret; }\n'
        + ".entry m () .explicitcluster .maxclusterrank 8 .maxnctapersm 1 .local_maxnreg 32 { ret; }\n"
    )
    assert list(module.entries) == ["k", "c", "m"]
    assert module.functions["vprintf"].body is None and module.functions["vprintf"].linking == "extern"
    assert module.functions["f"].body is not None  # the definition, not the declaration before it
    assert module.functions["f"].returns[0].space == "reg"
    assert module.functions["die"].limits == (Limit("noreturn"),)
    assert module.aliases == {"other": "die"} and Alias("other", "die") in module.items
    assert module.entries["k"].limit("maxntid") == (16, 16, 4)
    assert module.entries["k"].limit("reqntid") is None
    assert module.entries["c"].limit("blocksareclusters") == ()
    assert Pragma(('"nounroll"',)) in module.entries["c"].limits


# debugging ----------------------------------------------------------------------------------------------


def test_places_in_the_source_and_files() -> None:
    module = read(
        HEADER
        + '.file 1 "a \\"b\\".cu"\n.file 2 "C:/x//y.cu", 1339013327, 64118\n.entry k()\n{\n mov.u32 a, b;\n'
        ".loc 1 7 3\n add.u32 a, b, c;\n.loc 2 9 1, function_name $str+4, inlined_at 1 7 3\n ret;\n}\n"
    )
    assert module.files == {1: 'a \\"b\\".cu', 2: "C:/x//y.cu"}
    mov, add, ret = module["k"].function.operations
    assert mov.loc is None
    assert add.loc == Loc(1, 7, 3)
    assert ret.loc == Loc(2, 9, 1, "$str", 4, (1, 7, 3))
    assert (ret.loc.line, ret.line) == (11, 12)
    named = body(".loc 1 15 3, function_name .debug_str+16, inlined_at 1 10 5\n ret;")[0]
    assert named.function == ".debug_str"


def test_sections() -> None:
    (section,) = read(
        HEADER + ".section .debug_info {\n.b32 Lend-Lbegin\nLbegin: .b8 0x2b, -1, 255\n"
        ".b64 k+8\n.b32 .debug_abbrev\n"
        ".b16 -5\n.b32 .debug_loc+0x4\nLend:\n}\n"
    ).items
    assert isinstance(section, Section) and section.name == ".debug_info"
    assert section.items == (
        Data(32, ("Lend-Lbegin",)),
        Label("Lbegin"),
        Data(8, (43, -1, 255)),
        Data(64, ("k+8",)),
        Data(32, (".debug_abbrev",)),
        Data(16, (-5,)),
        Data(32, (".debug_loc+0x4",)),
        Label("Lend"),
    )


def test_old_dwarf_lines() -> None:
    module = read(
        HEADER
        + '.entry k() { ret; }\n\t@@DWARF .section .debug_info, "", @progbits\n@@DWARF\t.byte 0x02, 0x06\n'
    )
    assert [item.text for item in module.items if isinstance(item, Dwarf)] == [
        '.section .debug_info, "", @progbits', ".byte 0x02, 0x06",
    ]  # fmt: skip


def test_comments_and_line_markers() -> None:
    plain = body("add.s32 a, b, c;\nret;")
    commented = body('/* { */ add /* x\n y */ .s32 a, // "\n b, /**/ c; // }\n# 5 "file.c"\nret /***/ ;')
    assert commented == plain
    assert [statement.line for statement in commented] == [6, 10]
    assert body('.pragma "/* no comment */", "// nor this";')[0].strings == (
        '"/* no comment */"',
        '"// nor this"',
    )


def test_dos_line_ends() -> None:
    text = f"{HEADER}.entry k()\n{{\n add.s32 a, b, c; // x\n ret;\n}}\n"
    module = parse(text.replace("\n", "\r\n"))
    assert module == parse(text)
    assert [statement.line for statement in module["k"].body] == [6, 7]


def test_places_in_the_text() -> None:
    module = read(f"{HEADER}.visible .global .u32 x, y;\n  .entry k()\n{{\n\t@p  bra L;  ret;\nL:\n}}")
    assert [(item.line, item.column) for item in module.items] == [(4, 1), (4, 26), (5, 3)]
    assert [(part.line, part.column) for part in module["k"].body] == [(7, 2), (7, 14), (8, 1)]


# what ptxas says ----------------------------------------------------------------------------------------

ACCEPTED = """
    add .s32 r1, r2, r3;          mov.f32 f1, .5;              mov.f32 f1, 1.;         mov.f32 f1, 1.5E+3;
    mov.f32 f1, 0F3f800000;       mov.f64 g1, 0D3ff0000000000000; mov.u32 r1, 0b101U;  mov.u32 r1, 017U;
    mov.u64 d1, 18446744073709551615; mov.u32 r1, (1<<4)+3;    mov.u32 r1, 1?2:3;      mov.u32 r1, (.s64)5;
    mov.u32 r1, WARP_SZ*2;        mov.u32 r1, !5;              mov.u32 r1, - -5;
    mov.u32 r1, 1==1 && 2>1 || 0;
    mov.u64 d1, arr+4+4;          mov.u64 d1, arr[1];          ld.global.u32 r1, arr[r2+1];
    ld.global.u32 r1, arr[1+1];
    ld.global.u32 r1, [d1+4*4];   ld.global.u32 r1, [d1+-4];   ld.global.u32 r1, [arr+1<<2];
    ld.local.u32 r1, [16];
    mov.f32 f1, v.x;              mov.f32 f1, v.r;             setp.eq.s32 p1 | p2, r1, r2;
    setp.eq.and.s32 p1|_, r1, r2, !p3;  mov.b64 {r1,_}, d1;    st.global.v4.f32 [d1], v;
    st.global.v4.f32 [d1], {1.0,2.0,f1,f2};  vadd.u32.u32.u32 r1.b0, r2.b0, r3.h1, r4;
    lop3.or.b32 r1|p1, r1, r2, r3, 0x3f, p2; mov.v4.u32 {r1,r2,r3,_}, %tid;  mov.u32 r1, 5 % 3;
    @ p1 bra L; @! p1 bra L; L: M: .pragma "nounroll", "foo";
    { .reg .b32 q; mov.u32 q, 5; { .reg .b64 q; mov.u64 q, tile; } }
    shfl.sync.idx.b32 r1|p1, r2, 0, 31, -1;  ldmatrix.sync.aligned.x2.m8n8.shared.b16 {r1, r2}, [r3 + 16];
    ts: .branchtargets L, M; brx.idx r1, ts; st.global.u32 [d1], r1; st.global.f32 [d1+4], f1;
    ret;
}
.func f(){ret;}
.func (.reg .b32 r) h(.reg .b32 a, .reg .b32 b){ add.s32 r, a, b; ret;}
.visible .func w(){ret;} .visible .func ww(); .alias ww, w;
.entry calls(.param .u64 p) .maxntid 32,1,1 .minnctapersm 2 .maxnreg 64 .pragma "nounroll"; {
    .reg .b64 x; .reg .b32 y; .param .b32 rr, aa;
    c: .calltargets f; q: .callprototype _ (); mov.b64 x, f; call x, q; call x, c; call f; call.uni f, ();
    call (y), h, (5, y); call (_), h, (y, 1+1); call ww; ld.param.u64 x, [p]; st.global.u32 [x], y; ret;
}
.entry clusters() .reqntid 32 .reqnctapercluster 2,1,1 .blocksareclusters {ret;}
.global .u32 b1=1, b2=2; .global .u32 n[2][3]={{1,2,3},{4,5,6}}, m; .global .u32 o[][2]={{1,2},{3,4}};
.global .u64 a1=arr; .global .u64 a2=generic(arr)+8;
    .global .u8 e[8]={0xff(arr),0xff00(arr),0xFF00000000(generic(arr)),1};
.global .align 16 .v4 .f32 vv; .global .v4 .f32 ww4={1.0,2.0,3.0,4.0}; .common .global .s32 cg;
.global .attribute(.managed) .align 4 .s32 gm; .global .texref tx={width=5, normalized_coords=1};
"""

REFUSED = [
    "mov.f32 f1, 0f3f8;",
    "mov.u32 r1, 09;",
    "mov.u32 r1, 5u;",
    "mov.u64 d1, 0xFFFFFFFFFFFFFFFFF;",
    "mov.f32 f1, 1e999;",
    "mov.u32 r1, 1/0;",
    "mov.u32 r1, 5%3;",
    "mov.u64 d1, arr-4;",
    "mov.u64 d1, 4+arr;",
    "ld.global.u32 r1, [d1-4];",
    "ld.global.u32 r1, [arr+r2];",
    "ld.global.u32 r1, [4+d1];",
    "ld.global.u32 r1, [arr][4];",
    "#define X 4",
    "@p1 { mov.u32 r1, 5; }",
    "@p1 @p2 bra L; L:",
    "@p1 L: bra L;",
    "add.s32 r1, r2, 5 r3;",
    "mov.u32 r1, %tid . x;",
    "mov.f32 f1, -0f3F800000;",
    "mov.f32 f1, 0f3F800000+1.0;",
    "mov.f32 f1, 1+1.5;",
    "mov.u32 r1, ~1.5;",
    "}{",
    "add.s32 r1,,r2;",
    "mov.f32 f1, 1.5?2.5:3.5;",
    "mov.u64 d1, generic(arr);",
    ".global .visible .s32 g;",
    "_: ret;",
    "add. s32 r1, r2, 5;",
]


@needs_ptxas
def test_ptxas_sees_no_difference_between_a_text_and_its_print() -> None:
    text = HEADER + REGISTERS + ACCEPTED
    # without optimisation, so that nothing is dropped before it can differ
    assert ptxas(text, options=["-O0"]).image == ptxas(read(text), options=["-O0"]).image


@needs_ptxas
@pytest.mark.parametrize("statement", REFUSED)
def test_what_ptxas_refuses_is_refused(statement: str) -> None:
    text = f"{HEADER}{REGISTERS}    {statement}\n    ret;\n}}\n"
    with pytest.raises(PtxSyntaxError) as mine:
        parse(text)
    with pytest.raises(ValueError, match="ptxas refuses") as theirs:
        ptxas(text)
    assert f"line {mine.value.line}:" in str(theirs.value)


def test_an_inline_asm_has_the_place_of_its_first_line() -> None:
    """LLVM counts the lines of its text on: Triton 3.9 loads by an asm of several lines."""
    body = """
    .loc 1 12 19
    // begin inline asm
    .loc 1 12 19
    mov.u32 %r1, 0;
    .loc 1 13 19
    ld.global.b32 %r1, [%rd1];
    // end inline asm
    .loc 1 13 5
    add.u32 %r1, %r1, 1;
"""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n"
    head += ".reg .b32 %r<2>; .reg .b64 %rd<2>;"
    module = parse(f'{head}{body}    ret;\n}}\n.file 1 "a.py"\n')
    place, places = 0, {}
    for each in module["k"].body:
        if isinstance(each, Loc):
            place = each.source_line
        elif isinstance(each, Operation):
            places[str(each).split()[0]] = place
    assert places == {"mov.u32": 12, "ld.global.b32": 12, "add.u32": 13, "ret;": 13}
