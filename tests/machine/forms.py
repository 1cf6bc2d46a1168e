"""Forms of PTX instructions, opcode by opcode: patterns whose braces stand for a choice of modifiers.

Whether a form is legal is for ptxas to say; a pattern may well expand to forms that do not exist. Matrix
instructions are the catalogue's and are not here.
"""

import itertools
import re
from pathlib import Path

ROUND = "{,.rn,.rz,.rm,.rp}"
COMPARE = "{.eq,.ne,.lt,.le,.gt,.ge,.lo,.ls,.hi,.hs,.equ,.neu,.ltu,.leu,.gtu,.geu,.num,.nan}"
INTEGERS = "{.u16,.s16,.u32,.s32,.u64,.s64}"
SCOPE = "{.cta,.cluster,.gpu,.sys}"

#: `$` in a pattern stands for a register as wide as the last type of the form, `#` for its own type's.
PATTERNS = Path(__file__).with_name("forms.txt")
#: Those of which GPUs have some from Blackwell on.
BLACKWELL = Path(__file__).with_name("forms_blackwell.txt")

_CHOICE = re.compile(r"(?<!\\)\{((?:[^{} ]|\\, )*)\}")


def _expand(pattern: str) -> list[str]:
    parts: list[list[str]] = []
    place = 0
    for match in _CHOICE.finditer(pattern):
        inner = match[1]
        before = pattern[place : match.start()]
        choices = [each.replace("\0", ", ") for each in inner.replace("\\, ", "\0").split(",")]
        parts += [[before], choices]
        place = match.end()
    parts.append([pattern[place:]])
    return ["".join(each) for each in itertools.product(*parts)]


_LETTER = {8: "c", 16: "h", 32: "r", 64: "d", 128: "q"}


def width(modifier: str) -> int:
    """Bits of a type: of the registers that it takes."""
    match = re.fullmatch(r"(bf|tf|[usbf])(\d+)(x\d)?", modifier)
    return int(match[2]) * int((match[3] or "x1")[1:]) if match else 0


def _filled(form: str) -> str:
    head = form.split(" ", 1)[0]
    widths = [width(each) for each in head.split(".")[1:] if width(each)]
    count = next((int(each[1:]) for each in head.split(".") if re.fullmatch(r"v[248]", each)), 1)
    if widths:
        form = re.sub(r"\$(\d)", lambda m: f"%{_LETTER[widths[-1]]}{m[1]}", form)
        ends = [widths[0], widths[1]] if len(widths) > 1 else widths * 2
        form = re.sub(r"#(\d)", lambda m: f"%{_LETTER[max(ends[int(m[1])], 16)]}{m[1]}", form)
        letter = _LETTER[max(widths[-1], 16)]
        vector = "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}" if count > 1 else f"%{letter}0"
        form = form.replace("LOAD", vector)
        names = ", ".join(f"%r{n}" for n in range(count))
        form = form.replace("VECH", "{" + ", ".join(f"%h{n}" for n in range(count)) + "}")
        form = form.replace("VEC", "{" + names + "}")
    return form


def forms(*files: Path) -> list[str]:
    """Every form, once: of all files, or of some."""
    found: dict[str, None] = {}
    for line in "".join(each.read_text() for each in files or (PATTERNS, BLACKWELL)).splitlines():
        for old, new in (("ROUND", ROUND), ("COMPARE", COMPARE), ("SCOPE", SCOPE)):
            line = line.replace(old, new)
        for form in _expand(line):
            found[_filled(form)] = None
    return list(found)


HEADER = """.version {version}
.target {target}
.address_size 64
.global .align 16 .b8 g[1024]; .const .align 16 .b8 k[64]; .shared .align 16 .b8 s[1024]; .shared .b64 m;
"""
REGISTERS = (
    ".reg .pred %p<8>; .reg .b8 %c<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; "
    ".reg .b128 %q<8>; .reg .v4 .u32 %v<2>;"
)


def module_of(lines: list[str], target: str, version: str = "9.0") -> str:
    """A module of one kernel with these instructions, each on a line of its own from `FIRST` on."""
    body = "\n".join(lines)
    return (
        f"{HEADER.format(version=version, target=target)}"
        f".visible .entry e(.param .u32 arg)\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"
    )


#: The line of the first instruction of `module_of`.
FIRST = 8
