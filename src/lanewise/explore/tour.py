"""The Tour: pages with something to touch on each, after the first half of the tutorial.

A page has paragraphs, a widget with what it asks the other rooms, and a task whose answer lanewise gives.
"""

from functools import cache
from typing import Any

from lanewise.explore.answers import question
from lanewise.isa import instruction

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
TRANSPOSING = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
#: Rows of 32 f16, with longer rows, and under swizzles: what the pages on banks compare.
ROWS = ("(16,32):(32,1)", "(16,32):(64,1)", "(16,32):(48,1)", "(16,32):(40,1)")
SWIZZLED = tuple(f"Sw<{swizzle}> o (16,32):(32,1)" for swizzle in ("1,3,3", "2,3,2", "2,3,3"))


@question("tour", "pages")
def pages() -> list[dict[str, object]]:
    """Return the pages of the tour, in order."""
    return tour()


def _fragments(**focus: object) -> dict[str, object]:
    return {"kind": "fragments", "asks": [["instructions", "about", {"text": MMA}]], "focus": focus}


def _banks(layouts: tuple[str, ...], chosen: str) -> dict[str, object]:
    return {
        "kind": "banks",
        "layouts": layouts,
        "chosen": chosen,
        "asks": [
            ask
            for text in layouts
            for ask in (
                ["layouts", "evaluate", {"text": text}],
                ["layouts", "banks", {"text": text, "bits": 16, "access": "ldmatrix", "vector": 8}],
            )
        ],
    }


@cache
def tour() -> list[dict[str, Any]]:
    """Return the pages; the answers of their tasks are computed here.

    >>> tour()[0]["title"]
    'Nobody has the whole matrix'
    """
    return [*_on_fragments(), *_on_ldmatrix(), *_on_banks(), *_onwards()]


def _on_fragments() -> list[dict[str, object]]:
    """Who holds which elements, and who multiplies."""
    mma = instruction(MMA)
    a_holder, b_holder = mma.a.holder(3, 9), mma.b.holder(9, 3)
    row, col = mma.d.element(lane=5, value=2)
    others = ", ".join(f"B[{r}][{c}]" for r, c in (mma.b.element(b_holder.lane, v) for v in range(4)))
    return [
        {
            "key": "fragment",
            "title": "Nobody has the whole matrix",
            "text": [
                "A tensor core multiplies small matrices. This instruction computes D = A·B + C for a "
                "16×16 A and a 16×8 B of f16, and a 16×8 C and D of f32.",
                "It belongs to a *warp*: 32 *lanes*, threads that run together, execute it as one. "
                "Every lane holds 8 of A's 256 elements in 4 of its own registers, two f16 in each: its "
                "*fragment* of A. In the picture, `T5 V2` is lane 5's value 2, counted through its "
                "registers.",
            ],
            "widget": _fragments(),
            "task": {
                "kind": "element",
                "ask": "Who holds A[3][9]? Find the element and click it.",
                "want": ["a", 3, 9],
                "right": f"Lane {a_holder.lane}, register {a_holder.register}, slot {a_holder.slot}. In "
                "Python: mma.a.holder(3, 9).",
            },
        },
        {
            "key": "lane",
            "title": "What one lane holds",
            "text": [
                "Choose a lane and everything else fades: a few elements of A, of B, and of C and D. "
                "The rule behind it: lane = 4 · group + t. The group is the row of A (and that row plus "
                "8), t picks two neighbouring columns (and those plus 8).",
            ],
            "widget": {**_fragments(lane=5), "lanes": mma.threads},
            "task": {
                "kind": "lane",
                "ask": "Which lane holds B[9][3]? Choose it with the slider.",
                "want": b_holder.lane,
                "right": f"Lane {b_holder.lane} has {others}.",
            },
        },
        {
            "key": "product",
            "title": "Who multiplies",
            "text": [
                "An element of D is a row of A times a column of B. The lane that keeps the sum holds "
                "neither all of the row nor all of the column: the tensor core fetches them from the "
                "registers of other lanes. Click the number of a row of A, and the number of a column "
                "of B.",
            ],
            "widget": _fragments(row=row, col=None),
            "task": {
                "kind": "product",
                "ask": "Choose the row and the column whose product lane 5 keeps as its value 2 of D.",
                "want": [row, col],
                "right": f"D[{row}][{col}]: mma.d.element(lane=5, value=2).",
            },
        },
    ]


def _on_ldmatrix() -> list[dict[str, object]]:
    """How fragments are loaded from shared memory."""
    return [
        {
            "key": "ldmatrix",
            "title": "ldmatrix: rows become fragments",
            "text": [
                "To load a fragment element by element is slow. `ldmatrix` takes up to four 8×8 "
                "matrices from *shared memory*, the memory of a block. Every lane points at one row of "
                "8 elements, 16 bytes: lanes 0 to 7 at the rows of the first matrix, 8 to 15 of the "
                "second, and so on. What comes back is spread over the lanes as fragments are. Press "
                "Play.",
            ],
            "widget": {"kind": "moves", "asks": [["instructions", "about", {"text": LDMATRIX}]]},
        },
        {
            "key": "trans",
            "title": "ldmatrix.trans, for B",
            "text": [
                "B is stored by rows, but its fragment runs along columns. `.trans` transposes each 8×8 "
                "matrix on the way: the same rows are read, and other lanes get their elements.",
            ],
            "widget": {"kind": "moves", "asks": [["instructions", "about", {"text": TRANSPOSING}]]},
        },
    ]


def _on_banks() -> list[dict[str, object]]:
    """Bank conflicts, and how longer rows and swizzles remove them."""
    return [
        {
            "key": "banks",
            "title": "Shared memory has 32 banks",
            "text": [
                "Each bank is 4 bytes wide; an address lies in bank (address / 4) % 32. In one "
                "*wavefront* each bank delivers one word. ldmatrix reads 8 rows of 16 bytes at a time, "
                "128 bytes, which could be one wavefront. But rows of 32 f16 are 64 bytes long, so rows "
                "0, 2, 4 and 6 begin in the same bank: four turns instead of one. That is a *bank "
                "conflict*.",
                "A common cure makes rows longer. Try the lengths below.",
            ],
            "widget": _banks(ROWS, ROWS[0]),
            "task": {
                "kind": "turns",
                "ask": "Find a length of rows without conflicts.",
                "right": "Rows then begin in different banks, and 8 of them meet all 32. It costs "
                "memory, which a pipeline would like to fill with more tiles.",
            },
        },
        {
            "key": "swizzle",
            "title": "A swizzle costs no memory",
            "text": [
                "The other cure: in every row, the pieces of 16 bytes change places, by XOR of the "
                "piece's number with bits of the row's number. `Sw<2,3,3>` says: 2 bits are changed, "
                "from bit 3 of the index on (a piece is 2³ elements), by those 3 bits higher up. Not "
                "every swizzle fits.",
            ],
            "widget": _banks((ROWS[0], *SWIZZLED), SWIZZLED[0]),
            "task": {
                "kind": "turns",
                "ask": "Find the swizzle that removes all conflicts.",
                "right": "Rows that began in the same bank now begin with different pieces. In a kernel "
                "nothing changes but the array: lw.shared(lw.f16, (32, 32), swizzle=lw.Swizzle(2, 3, "
                "3)).",
            },
        },
    ]


def _onwards() -> list[dict[str, object]]:
    """The last page: where to go from here."""
    return [
        {
            "key": "on",
            "title": "And now a kernel",
            "text": [
                "You know who holds what, how it gets there, and what it costs. In the room "
                "[Kernels](#/kernels) whole kernels run on the CPU, step by step, forwards and "
                "backwards, with a checker that finds races and conflicts. In [Bits](#/bits) one sum is "
                "taken apart, bit by bit, on every GPU from V100 to B200.",
                "Every instruction is in [Instructions](#/instructions), and [Layouts](#/layouts) takes "
                "any layout that you type. The tutorial in the documentation goes on from here: a race "
                "planted and found, a pipeline, and the same kernel on a GPU.",
            ],
        },
    ]
