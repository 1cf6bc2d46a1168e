"""A table of libraries' headers: which line of inlined code is the one that its author knows.

CUTLASS, CuTe, CCCL and the CUDA toolkit consist of functions that are inlined. A message about one of their
lines is about the line that calls them.
"""

import linecache
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

#: Folders of headers that other people's kernels are made of.
_LIBRARIES = frozenset(
    ("cute", "cutlass", "cccl", "cub", "thrust", "libcudacxx", "crt", "cooperative_groups")
)
#: Folders below which CCCL has its headers: `cuda/std`, `cuda/__ptx`, `nv/target`.
_OF_CCCL = re.compile(
    r"(^|/)(cuda/(std|__\w+|ptx|pipeline|barrier|atomic|annotated_ptr)|nv/(target|detail))\b"
)
#: Headers of the toolkit.
_TOOLKIT = re.compile(
    r"(cuda_(fp16|bf16|fp8|fp6|fp4|pipeline\w*|awbarrier\w*|device_runtime\w*|runtime)|cooperative_groups"
    r"|sm_\d+_\w+|mma|device_\w+|math_functions|vector_functions|surface_\w+|texture_\w+)\.(h|hpp|cuh)"
)
#: What may begin or end an asm statement, and what may hide its end: a comment, a string, a character.
_TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+' | \b(?:asm|__asm__|__asm)\b | [()\n]""",
    re.DOTALL | re.VERBOSE,
)
#: The head of a loop that goes on until something has come, and how many lines before a line of it it may be.
_LOOP = re.compile(r"\b(?:while\s*\(|do\b|for\s*\(\s*;\s*;)")
_LINES_OF_LOOP = 3
#: The lines of files as linecache has them, with those that are of asm statements.
_KNOWN: dict[str, tuple[list[str], frozenset[int]]] = {}


def is_library_header(name: str) -> bool:
    """Return whether a file is a header of CUTLASS, CuTe, CCCL or the CUDA toolkit.

    >>> [is_library_header(name) for name in ("include/cute/arch/mma.hpp", "/usr/include/cuda_fp16.hpp")]
    [True, True]
    >>> [is_library_header(name) for name in ("flash_fwd_kernel.h", "cutlass_gemm.cu", "src/mma/tile.h")]
    [False, False, False]
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.suffix in (".cu", ".py"):
        return False
    in_library = bool(_LIBRARIES.intersection(path.parts[:-1])) or bool(_OF_CCCL.search(path.as_posix()))
    return in_library or _TOOLKIT.fullmatch(path.name) is not None


def is_inline_ptx(name: str, line: int) -> bool:
    """Return whether a line of a file is of an asm statement, as far as the file can be read."""
    lines = linecache.getlines(name)
    if name not in _KNOWN or _KNOWN[name][0] is not lines:
        _KNOWN[name] = lines, _asm_lines("".join(lines))
    return line in _KNOWN[name][1]


def is_waiting_loop(name: str, line: int) -> bool:
    """Return whether a line of a file is in a short loop without a counter, if the file can be read."""
    lines = linecache.getlines(name)[max(line - 1 - _LINES_OF_LOOP, 0) : line]
    return bool(lines) and _is_in_loop("".join(lines[:-1]), lines[-1])


def _is_in_loop(before: str, line: str) -> bool:
    """Return whether a line is the head of a loop without a counter, or in one that begins shortly before.

    >>> _is_in_loop("", "while (!try_wait(b, p));"), _is_in_loop("do {\\n", "  ok = try_wait(b, p);")
    (True, True)
    >>> _is_in_loop("while (x) {\\n}\\n", "f();"), _is_in_loop("", "for (int i = 0; i < 4; i++) f(i);")
    (False, False)
    """
    if _LOOP.search(line):
        return True
    heads = [before[match.start() :] for match in _LOOP.finditer(before)]
    return any(head.count("{") > head.count("}") for head in heads)


def _asm_lines(text: str) -> frozenset[int]:
    """Return the lines of the asm statements of a source, from the word to the parenthesis that closes it.

    >>> sorted(_asm_lines('f();\\nasm volatile("bar.sync 0; // )"\\n  :: "r"(x)\\n  : "memory");\\ng();'))
    [2, 3, 4]
    """
    line, depth, begun, lines = 1, 0, False, set()
    for token in _TOKEN.findall(text):
        if token.endswith(("asm", "asm__")) and token[0] not in "\"'/":
            begun, depth = True, 0
        if begun:
            lines |= set(range(line, line + token.count("\n") + 1)) if token != "\n" else {line}
            depth += (token == "(") - (token == ")")
            begun = depth > 0 or token != ")"
        line += token.count("\n")
    return frozenset(lines)


def authors_line(chain: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """Return the line that a message is about: of a place in the source, and the calls that inlined it.

    It is the first one that is in no library's header. An asm statement in another file than the kernel's is
    passed over, too: it is an instruction in a function of its own, and its caller says what it is for. The
    same holds for a function that repeats such an instruction until something has come.
    """
    own = [place for place in chain if not is_library_header(place[0])] or chain[-1:]
    kernel, is_instruction = own[-1][0], False
    for place in own:
        if place[0] == kernel:
            return place
        if not is_inline_ptx(*place):
            if not (is_instruction and is_waiting_loop(*place)):
                return place
            is_instruction = False
        else:
            is_instruction = True
    return own[-1]
