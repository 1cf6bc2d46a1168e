"""`lanewise explain`: all there is to know about one instruction, or the answer to one question."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lanewise.cli.explanation.question import Question
from lanewise.cli.input.encoded import drawable, instruction_descriptor, read_encoded
from lanewise.cli.input.options import (
    ArchName,
    ASource,
    Descriptor,
    InstructionWords,
    Stride,
    StyleOptions,
    valued,
    with_groups,
)
from lanewise.cli.input.subject import asynchronous_atom, copy_named, usual_instruction
from lanewise.cli.terminal.answer import show, style_of
from lanewise.errors import LanewiseError
from lanewise.isa.asynchronous import is_asynchronous

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom, MMA_Atom


@with_groups
def explain(
    words: InstructionWords,
    arch: ArchName = None,
    *,
    question: Question,
    a_source: ASource = None,
    stride: Stride = None,
    descriptor: Descriptor = None,
    shown: StyleOptions,
    svg: Annotated[Path | None, valued("--svg", "FILE", "Draw it, as SVG, into a file.")] = None,
    latex: Annotated[Path | None, valued("--latex", "FILE", "Draw it, as LaTeX, into a file.")] = None,
) -> Callable[[], None]:
    """Explain an instruction, or answer a question about it; or a matrix descriptor, or a tensor map.

    \b
    MMA=mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    lanewise explain $MMA                          what it is and where it runs
    lanewise explain $MMA --element A 3 9          which lane, register and bits hold A[3][9]
    lanewise explain $MMA --lane 5                 everything that lane 5 holds
    lanewise explain $MMA --register D 5 2         which element is in register 2 of lane 5
    lanewise explain $MMA --element D 3 4 --inputs   and which elements it is computed from
    lanewise explain $MMA --operand B              the whole layout of B
    lanewise explain $MMA --operand B --by-lane --csv > b.csv
    lanewise explain $MMA --svg mma.svg            draw it
    lanewise explain SM80_16x8x16_F32F16F16F32_TN  the same by CUTLASS's name
    lanewise explain m16n8k16 bf16                 by the words that say which it is
    lanewise explain HMMA.16816.F32                by the name of the machine's instruction
    lanewise explain tcgen05.mma.cta_group::1.kind::f16   tcgen05, bulk copies and tensor copies, too
    lanewise explain tcgen05 m128n256k16 bf16      tcgen05.mma with this shape and these formats
    lanewise explain tcgen05 m64n8k16 bf16 --element D 20 3   where D[20][3] lies in tensor memory
    lanewise explain tcgen05.mma.cta_group::1.kind::f16 --descriptor 0x8400490   or with 32 bits
    lanewise explain tcgen05.ld.sync.aligned.16x256b.x2.b32 --lane 5   the words of thread 5
    lanewise explain 0x8400490                     what an instruction descriptor of tcgen05.mma says
    lanewise explain 0x4000004000000040            what a matrix descriptor of wgmma or tcgen05 says
    lanewise explain map.bin                       what the 128 bytes of a tensor map say (or hex text)
    """
    from lanewise.atoms.mma_traits import NAMES as TRAIT_LAYOUTS
    from lanewise.atoms.mma_traits import named_layout

    instruction = " ".join(words)
    style = style_of(**vars(shown))
    for option, path, suffix in (("--svg", svg, ".svg"), ("--latex", latex, ".tex")):
        if path is not None and path.suffix.lower() not in ("", suffix):
            raise LanewiseError(
                f"{option} {path}: the name of the file ends in {path.suffix}, not in {suffix}; "
                "`lanewise draw … -o FILE` draws in the format that its suffix says"
            )
    encoded = read_encoded(instruction)
    if encoded is not None:
        if question != Question() or (arch, a_source, stride) != (None, None, None):
            raise LanewiseError(
                "questions are about instructions; of a descriptor or tensor map everything is shown"
            )
        return _encoded(encoded, style, svg, latex)
    named = asynchronous_atom(instruction)
    if named is not None or is_asynchronous(instruction):
        if (
            question not in (Question(element=question.element), Question(lane=question.lane))
            or a_source
            or stride
        ):
            raise LanewiseError(
                "--register, --operand and their like are for instructions with fragments in registers, "
                "which tcgen05 and bulk copies do not have; ask them with --element D 3 4 or --lane 5"
            )
        return _asynchronous(
            instruction, arch, instruction_descriptor(descriptor), question, style, svg, latex, named
        )
    if descriptor is not None:
        raise LanewiseError(f"--descriptor is for tcgen05.mma; {instruction} has no instruction descriptor")
    if re.match(r"\s*(\(|\d+:|Layout\s*<|Sw<|SW_|ComposedLayout)", instruction):
        raise LanewiseError(f"{instruction} is a layout: `lanewise draw layout '{instruction}'` shows it")
    if instruction.strip() in TRAIT_LAYOUTS:
        layout = named_layout(instruction.strip())
        raise LanewiseError(
            f"{instruction} is a layout of CuTe's traits: `lanewise draw layout '{layout}'` shows it"
        )
    copy = copy_named(instruction)
    if copy is not None and question == Question() and (svg, latex) == (None, None):
        from lanewise.cli.explanation.asynchronous import of_copy

        return partial(show, of_copy(copy), style)
    subject = usual_instruction(instruction, arch=arch, a_source=a_source, stride=stride)
    answer = question.answer(subject, arch)
    if svg is not None or latex is not None:
        _save_pictures(subject, svg, latex, **question.picture_options(subject))
    return partial(show, answer, style)


def _asynchronous(
    text: str,
    arch: str | None,
    descriptor: int | None,
    question: Question,
    style: str,
    svg: Path | None,
    latex: Path | None,
    atom: MMA_Atom | Copy_Atom | None = None,
) -> Callable[[], None]:
    """Explain tcgen05 or a bulk copy, or answer a question about its lanes, and draw it if asked to."""
    from lanewise.cli.explanation.asynchronous import of_async, of_atom, of_lane, of_place, text_of_atom
    from lanewise.isa import instruction

    text = text if atom is None else text_of_atom(atom)
    if question.element is not None:
        answer = of_place(text, arch, descriptor, question.element)
    elif question.lane is not None:
        answer = of_lane(text, arch, descriptor, question.lane)
    else:
        answer = of_async(text, arch, descriptor) if atom is None else of_atom(atom, arch)
    if svg is not None or latex is not None:
        subject = instruction(text, arch=arch, descriptor=descriptor)
        options: dict[str, Any] = {"lane": question.lane} if question.lane is not None else {}
        if question.element is not None and subject.multiplies:
            options["element"] = question.element
        _save_pictures(subject, svg, latex, **options)
    return partial(show, answer, style)


def _encoded(encoded: int | bytes, style: str, svg: Path | None, latex: Path | None) -> Callable[[], None]:
    """Explain a matrix descriptor or a tensor map, and draw it if that is asked for."""
    from lanewise.cli.explanation.encoded import of_descriptor, of_tensor_map

    answer = of_descriptor(encoded) if isinstance(encoded, int) else of_tensor_map(encoded)
    if svg is not None or latex is not None:
        _save_pictures(drawable(encoded), svg, latex)
    return partial(show, answer, style)


def _save_pictures(subject: Any, svg: Path | None, latex: Path | None, **options: Any) -> None:
    """Draw a subject into the files that were asked for."""
    from lanewise import draw

    for path, write in ((svg, draw.svg), (latex, draw.latex)):
        if path is not None:
            path.write_text(write(subject, **options), encoding="utf-8")
