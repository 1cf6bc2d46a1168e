"""The questions that `lanewise explain` takes as options, at most one at a time, and who answers each."""

from dataclasses import dataclass
from typing import Annotated, Any

from lanewise.cli.explanation import holdings, summary
from lanewise.cli.input.options import flag, valued
from lanewise.cli.terminal.answer import Answer
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction


@dataclass(frozen=True)
class Question:
    """What was asked, as the options say it; a contradiction between them is refused.

    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> Question(element=("A", 3, 9)).answer(mma).data["holders"]
    [{'lane': 12, 'register': 2, 'slot': 1, 'first_bit': 16, 'last_bit': 31}]
    """

    lane: Annotated[int | None, valued("--lane", "LANE", "Show what this lane holds.")] = None
    element: Annotated[
        tuple[str, int, int] | None,
        valued("--element", "OPERAND ROW COL", "Show which lane, register and bits hold this element."),
    ] = None
    register: Annotated[
        tuple[str, int, int] | None,
        valued("--register", "OPERAND LANE REGISTER", "Show what this register holds."),
    ] = None
    operand: Annotated[
        str | None,
        valued(
            "--operand",
            "OPERAND",
            "Show the whole layout of A, B, C, D, E, scale-a or scale-b; with --lane, only its part.",
        ),
    ] = None
    by_lane: Annotated[
        bool, flag("--by-lane", "With --operand: show lanes × registers instead of rows × columns.")
    ] = False
    transpose: Annotated[bool, flag("--transpose", "With --operand: transpose the table.")] = False
    inputs: Annotated[
        bool,
        flag(
            "--inputs",
            "With an --element or --register of D: show also every element that it is computed from.",
        ),
    ] = False
    product: Annotated[
        int | None, valued("--product", "Q", "Which of the four products of Volta's m8n8k4 is meant.")
    ] = None

    def __post_init__(self) -> None:
        given = {"--lane": self.lane, "--element": self.element, "--register": self.register}
        asked = [name for name, value in given.items() if value is not None]
        if len(asked) > 1:
            raise LanewiseError(f"one question at a time: {' and '.join(asked)} were given")
        if self.operand is not None and asked and asked != ["--lane"]:
            raise LanewiseError(f"{asked[0]} names its operand itself; leave --operand {self.operand} out")
        whole = self.operand is not None and not asked
        for name, is_given in (("--by-lane", self.by_lane), ("--transpose", self.transpose)):
            if is_given and not whole:
                raise LanewiseError(f"{name} shapes the whole layout of an operand: give it with --operand")
        if self.inputs and self.element is None and self.register is None:
            raise LanewiseError(
                "--inputs asks what an element of D is computed from: give it with an element of D"
            )
        if self.product is not None and (self.register is not None or not (asked or whole)):
            raise LanewiseError(
                "--product goes with --lane, --element or --operand (--register decides it itself)"
            )

    def answer(self, subject: Instruction, arch: str | None = None) -> Answer:
        """The answer, by whoever knows it."""
        if self.element is not None:
            name, row, col = self.element
            operand = holdings.operand_named(subject, name)
            return holdings.of_element(subject, operand, row, col, self.product or 0, self.inputs)
        if self.register is not None:
            name, lane, register = self.register
            return holdings.of_register(
                subject, holdings.operand_named(subject, name), lane, register, self.inputs
            )
        chosen = holdings.operand_named(subject, self.operand) if self.operand is not None else None
        if self.lane is not None:
            return holdings.of_lane(subject, self.lane, chosen, self.product)
        if chosen is not None:
            layout = holdings.by_lane if self.by_lane else holdings.by_element
            return layout(subject, chosen, self.product, self.transpose)
        return summary.of_instruction(subject, arch)

    def picture_options(self, subject: Instruction) -> dict[str, Any]:
        """What a picture of the answer points out."""
        options: dict[str, object] = {"lane": self.lane, "product": self.product}
        if self.operand is not None:
            options["operand"] = holdings.operand_named(subject, self.operand).name
        if self.element is not None:
            name, row, col = self.element
            options["element"] = holdings.operand_named(subject, name).name, row, col
            options["inputs"] = self.inputs or None
        if self.register is not None:
            name, lane, _ = self.register
            options |= {"operand": holdings.operand_named(subject, name).name, "lane": lane}
        return {name: value for name, value in options.items() if value is not None}
