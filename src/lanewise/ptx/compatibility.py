"""The PTX version that a module and each of its instructions need.

What a matrix instruction needs, the catalogue says; for other instructions, one row a version, held against
ptxas, which names the version that an instruction wants.
"""

import re
from collections.abc import Iterator

from lanewise.errors import IllegalInstruction
from lanewise.isa import arch_number
from lanewise.ptx.model.directives import Limit
from lanewise.ptx.model.function import Function
from lanewise.ptx.model.module import Module
from lanewise.ptx.model.statements import Loc, Operation
from lanewise.ptx.targets import version_numbers

#: The version that PTX for the oldest target has.
_OLDEST = "6.0"
#: What an instruction's text must hold to need a version, the newest first. Version 6.0 has all others.
_INSTRUCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (version, re.compile(pattern))
    for version, pattern in (
        (
            "8.8",
            r"(?:ld|st)\.(?:.*\.)?(?:v8\.[busf]32|v4\.[busf]64)\b"
            r"|(?:min|max)\.(?:\w+\.)*f32 [^,]+,[^,]+,[^,]+,",
        ),
        ("8.7", r"cvt\.rs|(?:st|red)\.async(?!.*mbarrier)|tensormap\.replace\..*elemtype\..*, 1[345];"),
        (
            "8.6",
            r".*\.f32x2\b|st\.bulk|redux\..*\.f32|clusterlaunchcontrol|tcgen05|cvt\..*\.(?:e2m1|e2m3|e3m2|ue8m0)"
            r"|cp\.(?:reduce\.)?async\.bulk\..*(?:shared::cta\.global|cta_group|gather4|scatter4|im2col::w|cp_mask)"
            r"|(?:add|sub|fma)\.(?:\w+\.)*f32\.b?f16\b|cvt\.r[nz]\.(?:\w+\.)*satfinite\.(?:\w+\.)*tf32"
            r"|tensormap.*swizzle_atomicity|mbarrier\.(?:arrive|test|try).*\.relaxed|.*sync_restrict",
        ),
        ("8.3", r".*\.b128\b|tensormap|fence\.proxy\.tensormap|(?:ld|st)\.param::"),
        ("8.2", r"lop3\.(?:or|and|xor)\."),
        (
            "8.1",
            r"(?:st|red)\.async|multimem|cvt\..*satfinite\.(?:\w+\.)*(?:b?f16(?:x2)?|tf32)\.f32|(?:atom|red)\..*\.v[248]\b|.*\.oob\b|.*%aggr_smem_size",
        ),
        (
            "8.0",
            r"wgmma|setmaxnreg|elect|cp\.async\.bulk|cp\.reduce|fence\.proxy\.async|fence\.mbarrier_init"
            r"|.*\.expect_tx|.*\.[su]16x2\b|(?:min|max)\.relu\.s32|.*%current_graph_exec",
        ),
        (
            "7.8",
            r".*::(?:cta|cluster)\b|barrier\.(?:cta|cluster)|mbarrier\.try_wait|mapa|getctarank|griddepcontrol"
            r"|(?:add|sub|mul|setp?|atom|red|ex2)\.(?:.*\.)?bf16(?:x2)?\b|cvt\.r[nz]\.(?:relu\.)?tf32"
            r"|cvt\..*\.(?:e4m3|e5m2)|cvt\.(?:\w+\.)*bf16\.(?:f16|f64|bf16|[su]\d+)\b"
            r"|cvt\.(?:\w+\.)*(?:f16|f64|[su]\d+)\.bf16\b|.*%(?:n?cluster|is_explicit_cluster)",
        ),
        ("7.7", r"(?:isspacep|cvta)\.(?:to\.)?param"),
        ("7.6", r"szext|bmsk|.*%reserved_smem_offset"),
        ("7.5", r"fence\.proxy"),
        ("7.4", r"createpolicy|discard|applypriority|.*\.L[12]::"),
        ("7.3", r"alloca|stacksave|stackrestore"),
        ("7.1", r"mbarrier\.test_wait\.parity|cvt\.f32\.bf16\b"),
        (
            "7.0",
            r"cp\.async|redux|mbarrier|cvt\..*(?:bf16|tf32|relu|f16x2)|.*\.bf16(?:x2)?\b|tanh|ex2\..*\.f16"
            r"|(?:min|max)\..*(?:NaN|f16)|fma\..*\.relu",
        ),
        ("6.5", r"cvt\.pack"),
        ("6.3", r"(?:atom|red)\..*(?:\.noftz\.f16|cas\.b16)\b"),
        ("6.2", r"activemask|nanosleep|(?:atom|red)\..*\.f16x2\b"),
    )
)
#: The first version that knows a target, by its number; suffixes came with these or later.
_TARGETS = {
    70: "6.0", 72: "6.1", 75: "6.3", 80: "7.0", 86: "7.1", 87: "7.4", 88: "9.0", 89: "7.8", 90: "7.8",
    100: "8.6", 103: "8.8", 110: "9.0", 120: "8.7", 121: "8.8",
}  # fmt: skip
_SUFFIXES = {"a": "8.0", "f": "8.8"}
#: Directives of a kernel that came with clusters.
_CLUSTERS = ("reqnctapercluster", "maxclusterrank", "explicitcluster")


def needed_version(module: Module) -> str:
    """The lowest PTX version that has all instructions of a module, and its target.

    >>> from lanewise.ptx import parse
    >>> text = ".version 9.0\\n.target sm_80\\n.visible .entry k() { cp.async.wait_all; ret; }"
    >>> needed_version(parse(text))
    '7.0'
    """
    return max(_needs(module), key=version_numbers)


def instruction_version(operation: Operation) -> str:
    """The lowest PTX version that has an instruction."""
    try:
        matrix = operation.instruction()
    except IllegalInstruction:  # the assembler will say what is wrong with it
        matrix = None
    if matrix is not None:
        return max(matrix.since, _OLDEST, key=version_numbers)
    text = str(operation) if operation.guard is None else str(operation).split(" ", 1)[1]
    return next((version for version, pattern in _INSTRUCTIONS if pattern.match(text)), _OLDEST)


def _needs(module: Module) -> Iterator[str]:
    yield _TARGETS.get(arch_number(module.target), _OLDEST)
    yield _SUFFIXES.get(module.target[-1], _OLDEST)
    for item in module.items:
        if not isinstance(item, Function):
            continue
        if any(isinstance(limit, Limit) and limit.name in _CLUSTERS for limit in item.limits):
            yield "7.8"
        for statement in item.body or ():
            if isinstance(statement, Operation):
                yield instruction_version(statement)
            elif isinstance(statement, Loc) and statement.function:
                yield "7.2"
