"""Text that is not PTX: always a PtxSyntaxError with a place, never another exception, never a long wait."""

import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everything import examples, sampled
from growth import grows_in_proportion
from lanewise import LanewiseError
from lanewise.ptx import PtxSyntaxError, load, parse
from lanewise.ptx.syntax.body_parser import BodyParser

HEADER = ".version 9.0\n.target sm_80\n.address_size 64\n"
SAMPLES = [path.read_text() for path in sorted((Path(__file__).parent.parent / "data" / "ptx").glob("*.ptx"))]


def complaint(text: str) -> PtxSyntaxError:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "column", "found", "expected"),
    [
        ("", 1, 1, "the end of the text", ".version"),
        ("hello", 1, 1, "'hello'", ".version"),
        (".version 9", 1, 10, "'9'", "a version such as 9.0"),
        (".version 9.0\n.entry k", 2, 1, "'.entry'", ".target"),
        (f"{HEADER}.globl .u32 x;", 4, 1, "'.globl'", ".global"),
        (f"{HEADER}.global .u33 x;", 4, 9, "'.u33'", "a type"),
        (f"{HEADER}.global .u32 x[5;", 4, 17, "';'", "']'"),
        (f"{HEADER}.global .u32 x = {{1, 2;", 4, 23, "';'", "',' or '}'"),
        (f"{HEADER}.visible k() {{}}", 4, 10, "'k'", "a directive"),
        (f"{HEADER}.file 1 abc", 4, 9, "'abc'", "in quotes"),
        (f"{HEADER}.section .debug {{ .b8 x y }}", 4, 25, "'y'", ".b8"),
        (f"{HEADER}.entry k() .maxntd 5 {{ }}", 4, 12, "'.maxntd'", ".maxntid"),
        (f"{HEADER}.entry k(.u32 x) {{ }}", 4, 10, "'.u32'", "a parameter"),
        (f"{HEADER}.entry k() {{ ret; }} }}", 4, 21, "'}'", "a directive"),
    ],
)
def test_module_scope(text: str, line: int, column: int, found: str, expected: str) -> None:
    error = complaint(text)
    assert (error.line, error.column, error.found) == (line, column, found)
    assert expected in error.expected
    assert str(error).startswith(f"line {line}, column {column}: found {found}, expected ")


@pytest.mark.parametrize(
    ("statements", "line", "column", "found", "expected"),
    [
        ("\tadd.s32 a, b, c\n\tmul.lo.s32 a, a, a;", 6, 2, "'mul'", "',' or ';'"),
        ("\tadd.s32 a, , c;", 5, 13, "','", "an operand"),
        ("\tadd.s32 a, b,;", 5, 15, "';'", "an operand"),
        ("\tret", 6, 1, "'}'", "';'"),
        ("\tbra.uni A B;", 5, 12, "'B'", "',' or ';'"),
        ("\t@ bra L;", 5, 8, "'L'", "an opcode"),
        ("\t@p1 @p2 bra L;", 5, 6, "'@'", "an opcode"),
        ("\t@5 bra L;", 5, 3, "'5'", "a predicate register"),
        ("\t5 + 3;", 5, 2, "'5'", "an instruction"),
        ("\tld.u32 r, [d-4];", 5, 14, "'-'", "']'"),
        ("\tld.u32 r, [d+r];", 5, 15, "'r'", "a constant number of bytes"),
        ("\tmov.u32 r, {a, b;", 5, 18, "';'", "',' or '}'"),
        ("\tmov.u32 r, 5u;", 5, 13, "malformed number '5u'", "an operand"),
        ("\t.reg .b32 %r<x>;", 5, 15, "'x'", "how many registers"),
        ("\t.foo 1;", 5, 2, "'.foo'", "one of .loc"),
        ("\t.loc 1 2\n\tret;", 6, 2, "'ret'", "a column"),
        ("\t.pragma nounroll;", 5, 10, "'nounroll'", "a string"),
        ('\tmov.u32 r, "abc;', 5, 13, "a string without an end", "an operand"),
        ("\tmov.u32 r, é;", 5, 13, "'é'", "an operand"),
    ],
)
def test_bodies(statements: str, line: int, column: int, found: str, expected: str) -> None:
    error = complaint(f"{HEADER}.entry k() {{\n{statements}\n}}")
    assert (error.line, error.column, error.found) == (line, column, found)
    assert expected in error.expected


def test_a_brace_that_is_never_closed_is_named() -> None:
    error = complaint(f"{HEADER}.entry k()\n{{\n{{ ret; }}\n{{\nret;\n}}")
    assert "'{' of line 5" in error.expected
    error = complaint(f"{HEADER}.entry k()\n{{\n{{ ret; }}\n{{\nret;\n")
    assert "'{' of line 7" in error.expected


def test_the_line_is_shown_with_a_mark_under_the_place() -> None:
    message = str(complaint(f"{HEADER}.entry k() {{\n\tadd.s32\ta, b c; // why\n}}"))
    complaint_line, source, mark = message.split("\n")
    assert complaint_line == "line 5, column 15: found 'c', expected ',' or ';'"
    assert source.removeprefix("    ") == "\tadd.s32\ta, b c; // why"
    assert source[mark.index("^")] == "c" and mark[:5] == "    \t"


def test_long_lines_are_cut_around_the_place() -> None:
    message = str(complaint(f"{HEADER}.entry k() {{ mov.b64 {{{', '.join(['%r1'] * 500)} 5}}, %rd1; }}"))
    _, source, mark = message.split("\n")
    assert len(source) < 120
    assert source[mark.index("^")] == "5"


def test_errors_survive_pickling() -> None:
    error = complaint("hello")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.found) == (str(error), error.line, error.found)


def test_a_comment_without_an_end() -> None:
    error = complaint(f"{HEADER}.entry k() {{ ret; }}\n  /* and so on")
    assert (error.line, error.column) == (5, 3)


@pytest.mark.parametrize("given_instead", [None, 5, b".version 9.0", ["x"]])
def test_what_is_no_text(given_instead: Any) -> None:
    with pytest.raises(LanewiseError, match="not"):
        parse(given_instead)
    with pytest.raises(LanewiseError, match="not"):
        load(given_instead)


# anything at all ----------------------------------------------------------------------------------------

PIECES = [
    ";", "{", "}", "(", ")", "[", "]", ",", "<", ">", "|", "+", "-", "!", "@", "%", "%r1", ".", "::",
    ".reg", ".b32", ".entry", ".func", "0x", "0f", '"', "/*", "*/", "//", "\n", "\0", "\ufeff", "é",
    "9" * 5000, "1e999", ".loc 1 2", ".section", "=", "{" * 99, "(" * 99, "generic(", "0xFF(", "?", "~",
    "WARP_SZ", "_", "$", "call", "{ret;}", "# 5", "\u00a0", "\x1c", " , ", "@@DWARF", ".version 9.0",
    ".target x",
    "<99999999999999999999>", ".branchtargets L<1000000000>;", "", "",
]  # fmt: skip


def damaged(random: Random) -> str:
    """A real file, or a part of one, in which a few pieces are cut out or replaced."""
    text = random.choice(SAMPLES)
    start, length = random.randrange(len(text)), random.randrange(12_000)
    if random.random() < 0.7:
        text = random.choice([text[:length], HEADER + text[start : start + length]])
    for _ in range(random.randrange(4)):
        place = random.randrange(len(text) + 1)
        text = text[:place] + random.choice(PIECES) + text[place + random.choice([0, 0, 1, 2, 7, 40]) :]
    return text


@settings(max_examples=examples(300), deadline=None)
@given(st.randoms(use_true_random=True))
def test_damaged_files_are_read_or_refused_with_a_place(random: Random) -> None:
    text = damaged(random)
    try:
        module = parse(text)
    except PtxSyntaxError as error:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 2
    else:
        assert parse(str(module)) == module


def result(text: str) -> object:
    try:
        return parse(text)
    except PtxSyntaxError as error:
        return error.line, error.column


@settings(max_examples=examples(100), deadline=None)
@given(st.randoms(use_true_random=True))
def test_short_cuts_never_matter(random: Random) -> None:
    """Cut by regular expressions or read by the grammar: the same module, or an error at the same place."""
    text = damaged(random)
    quick = result(text)
    with mock.patch.object(BodyParser, "_known", lambda self, text: None):
        assert result(text) == quick


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=200), st.booleans())
def test_any_text(text: str, with_header: bool) -> None:
    with suppress(PtxSyntaxError):
        parse(HEADER + text if with_header else text)


#: How often a part of a text is repeated.
BIG = 50_000


@sampled(12)
@pytest.mark.parametrize(
    "text",
    [
        lambda n: "{" * n,
        lambda n: ".entry k() {" + "{" * n,
        lambda n: ".entry k() {" + "{" * n + "}" * n + "}",
        lambda n: ".entry k() { mov.u32 a, " + "(" * n,
        lambda n: ".entry k() { mov.u32 a, " + "-" * n,
        lambda n: ".entry k() { mov.u32 a, " + "1+" * n + "1; }",
        lambda n: ".entry k() { mov.u32 a, " + "{" * n,
        lambda n: ".entry k() { mov.u32 a, " + "[a," * n,
        lambda n: ".entry k() { mov.u32 a" + ", a" * n + "; }",
        lambda n: ".entry k() { mov.u32 a, {" + "a, " * n,
        lambda n: ".entry k() { " + "a: " * n,
        lambda n: ".entry k() { " + "@p " * n,
        lambda n: ".entry k() { add" + " .x" * n,
        lambda n: ".global .u32 x = " + "{" * n,
        lambda n: ".global .u32 x = {" + "1, " * n,
        lambda n: ".global .u32 x = {" + "{1}, " * n,
        lambda n: ".global .u32 x" + "[1]" * n + ";",
        lambda n: ".section .x {" + ".b8 1," * n,
        lambda n: ".section .x {" + ".b8 1 " * n + "}",
        lambda n: "/" + "*/" * n,
        lambda n: "/*" * n,
        lambda n: '"' * n,
        lambda n: "//" * n,
        lambda n: "\\" * n,
        lambda n: "\n" * n,
        lambda n: "# 1\n" * n,
        lambda n: ".x" * n,
        lambda n: "9" * n,
        lambda n: "a" * n,
    ],
    ids=lambda text: text(30)[:30].strip(),
)
def test_no_text_takes_long(text: Callable[[int], str]) -> None:
    """Time grows with the length of the text, up to fifty thousand of anything."""

    def read(count: int) -> None:
        with suppress(PtxSyntaxError):
            parse(HEADER + text(count))

    assert grows_in_proportion(read, BIG)


# files --------------------------------------------------------------------------------------------------


def test_load_takes_paths_and_text(tmp_path: Path) -> None:
    text = f"{HEADER}.visible .entry k() {{ ret; }}\n"
    file = tmp_path / "kernel.ptx"
    file.write_text(text)
    assert load(file) == load(str(file)) == load(text) == parse(text)
    assert load(text.replace("\n", " ")) == parse(text)


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(LanewiseError, match=r"no\.ptx: no such file"):
        load(tmp_path / "no.ptx")
    with pytest.raises(LanewiseError, match=r"no\.ptx: no such file"):
        load(str(tmp_path / "no.ptx"))
    with pytest.raises(LanewiseError, match="neither a file nor PTX"):
        load("kernel")
    with pytest.raises(LanewiseError, match="empty text"):
        load("  \n")
    with pytest.raises(LanewiseError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "k.cu").write_text("__global__ void k() {}")
    with pytest.raises(LanewiseError, match=r"lanewise\.cuda"):
        load(tmp_path / "k.cu")
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF\x02\x01")
    with pytest.raises(LanewiseError, match="a cubin"):
        load(tmp_path / "k.cubin")
    (tmp_path / "bad.ptx").write_text(HEADER + "oops")
    with pytest.raises(PtxSyntaxError) as caught:
        load(tmp_path / "bad.ptx")
    assert "bad.ptx" in caught.value.__notes__[0]
