"""Where addresses of a kernel come from: reaching definitions, and the variables that values lead into."""

import random

import pytest

import lanewise as lw
from lanewise.machine.analysis.definite_assignment import key_of
from lanewise.machine.analysis.pointer_provenance import DESCRIPTOR_SHIFT, AddressSources
from lanewise.machine.analysis.reaching_definitions import Definition, ReachingDefinitions
from lanewise.machine.program.basic_blocks import BasicBlock, split, successors
from lanewise.machine.program.operands import Register
from lanewise.machine.program.ops import Op
from lanewise.machine.program.resolve import resolve

HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .b16 %h<4>;
    .shared .align 1024 .b8 first[2048];
    .shared .align 1024 .b8 second[2048];
"""


def blocks_of(body: str) -> list[BasicBlock]:
    """Return the basic blocks of a kernel with this body."""
    module = lw.load(f"{HEAD}{body}\nret;\n}}\n")
    return split(resolve(module, module["k"].function))


def drawn_body(rng: random.Random) -> str:
    """Draw basic blocks that write four registers, some under a guard, and branch anywhere."""
    count, lines = rng.randrange(2, 6), []
    for number in range(count):
        lines.append(f"L{number}:")
        for _ in range(rng.randrange(4)):
            guard = "@%p1 " if rng.random() < 0.3 else ""
            lines.append(f"{guard}add.u32 %r{rng.randrange(4)}, %r{rng.randrange(4)}, 1;")
        if rng.random() < 0.7:
            guard = "@%p2 " if rng.random() < 0.8 else ""
            lines.append(f"{guard}bra L{rng.randrange(count)};")
    return "\n".join(lines)


def uses(op: Op) -> set[Register]:
    """Return the registers of 32 bits that an instruction of `drawn_body` reads."""
    return {each for each in op.operands[1:] if isinstance(each, Register)}


@pytest.mark.parametrize("seed", range(8))
def test_reaching_definitions_are_those_that_walks_meet(seed: int) -> None:
    """Random walks through a kernel see exactly the definitions that the analysis names.

    Of a register with one definition it names that one everywhere.
    """
    rng = random.Random(seed)
    blocks = blocks_of(drawn_body(rng))
    found = ReachingDefinitions(blocks)
    met: dict[Definition, set[Definition]] = {}
    for _ in range(300):
        last: dict[Register, Definition] = {}
        block: BasicBlock | None = blocks[0]
        for _ in range(20):
            assert block is not None
            for op in block.executed:
                for register in uses(op):
                    use = met.setdefault(Definition(key_of(op), register), set())
                    if register in last:
                        use.add(last[register])
                if op.opcode == "add" and (op.guard is None or rng.random() < 0.5):
                    target = op.operands[0]
                    assert isinstance(target, Register)
                    last[target] = Definition(key_of(op), target)
            following = successors(block)
            if not following:
                break
            block = rng.choice(following)
    by_key = {key_of(op): op for block in blocks for op in block.executed}
    targets = [op.operands[0] for op in by_key.values() if op.opcode == "add"]
    for read, definitions in met.items():
        named = {found.definitions[each] for each in found.reaching(by_key[read.key], read.register)}
        assert definitions <= named
        assert definitions == named or targets.count(read.register) == 1, read


#: What a value is after some instructions: the variable that it leads into, or none; a descriptor's if the
#: name ends so.
VALUES = {
    "mov.u32 %r1, first;": "first",
    "mov.u32 %r1, first+16; add.u32 %r1, %r1, 32;": "first",
    "mov.u32 %r1, first; mov.u32 %r1, second;": "second",
    "mov.u32 %r0, %tid.x; mov.u32 %r1, first; mad.lo.u32 %r1, %r0, 16, %r1;": "first",
    "mov.u32 %r0, %tid.x; mov.u32 %r1, first; mad.lo.u32 %r1, %r1, 16, %r0;": "",
    "mov.u32 %r1, first; mov.u32 %r2, second; add.u32 %r1, %r1, %r2;": "",
    "mov.u32 %r2, second; mov.u32 %r1, first; sub.u32 %r2, %r2, %r2; add.u32 %r1, %r1, %r2;": "first",
    "mov.u32 %r2, second; mov.u32 %r1, first; sub.u32 %r2, %r1, %r2; add.u32 %r1, %r1, %r2;": "",
    "mov.u32 %r1, first; @%p1 mov.u32 %r1, second;": "",
    "mov.u32 %r1, second; @%p1 add.u32 %r1, %r1, 64;": "second",
    "mov.u32 %r1, first; mov.u32 %r2, second; selp.u32 %r1, %r1, %r2, %p1;": "",
    "mov.u32 %r1, first; add.u32 %r2, %r1, 4; selp.u32 %r1, %r1, %r2, %p1;": "first",
    "mov.u32 %r1, first; shr.u32 %r2, %r1, 3; and.b32 %r2, %r2, 112; xor.b32 %r1, %r1, %r2;": "first",
    "mov.u32 %r1, first; and.b32 %r1, %r1, 0x3ffff;": "first",
    "mov.u32 %r1, first; add.u32 %r1, %r1, 1023; and.b32 %r1, %r1, -1024;": "first",
    "mov.u32 %r1, first; and.b32 %r1, %r1, 127;": "",
    "mov.u32 %r1, first; cvt.u16.u32 %h1, %r1; cvt.u32.u16 %r1, %h1;": "",
    "mov.u32 %r1, first; mul.lo.u32 %r1, %r1, 3;": "",
    "mov.u32 %r1, first; mapa.shared::cluster.u32 %r1, %r1, 1;": "first",
    "mov.u64 %rd1, first; cvta.shared.u64 %rd2, %rd1; cvta.to.shared.u64 %rd3, %rd2; cvt.u32.u64 %r1, %rd3;":
        "first",
    "mov.u32 %r1, first; shr.u32 %r1, %r1, 4;": "first descriptor",
    "mov.u32 %r1, first; bfe.u32 %r1, %r1, 4, 14; or.b32 %r1, %r1, 65536;": "first descriptor",
    "mov.u32 %r1, first; bfe.u32 %r1, %r1, 4, 3;": "",
    "mov.u32 %r1, first; shr.u32 %r1, %r1, 4; shl.b32 %r1, %r1, 4;": "first",
    "mov.u32 %r1, first; shr.u32 %r1, %r1, 4; mov.b64 %rd1, {%r1, 7}; mov.b64 {%r1, %r2}, %rd1;":
        "first descriptor",
    "mov.u32 %r2, first; shr.u32 %r2, %r2, 4; mov.b64 %rd1, {%r2, 7}; mov.b64 {%r2, %r1}, %rd1;": "",
    "ld.shared.u32 %r1, [first];": "",
}  # fmt: skip


@pytest.mark.parametrize("body", VALUES)
def test_variables_that_values_lead_into(body: str) -> None:
    blocks = blocks_of(f"{body} add.u32 %r9, %r1, 0;")
    sources = AddressSources(ReachingDefinitions(blocks))
    op = next(op for block in blocks for op in block.executed if str(op.source).startswith("add.u32 %r9"))
    found = {
        f"{variable.name}{suffix}"
        for shift, suffix in ((0, ""), (DESCRIPTOR_SHIFT, " descriptor"))
        if (variable := sources.variable(op, op.operands[1], shift)) is not None
    }
    assert found == ({VALUES[body]} if VALUES[body] else set())
