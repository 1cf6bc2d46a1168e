"""The colours of pictures: eight pastels, eight greys, and what stands for conflicts and for nothing.

Which cell has which colour is decided where its picture is described.
"""

from lanewise.errors import LanewiseError

#: Cells by thread (or value, register, bank) modulo 8; black text reads well on each.
PASTELS = ("#a9cbf5", "#b5e2a2", "#ffe48a", "#f7b2ab", "#cdb8ee", "#9fe0d8", "#ffc891", "#f0b7dc")
#: Cells of plain layouts by index modulo 8.
GREYS = ("#ffffff", "#f1f1f1", "#e4e4e4", "#d6d6d6", "#c8c8c8", "#bbbbbb", "#adadad", "#a0a0a0")
#: Shared-memory conflicts: free, 2, 3 or 4, and more ways.
CONFLICTS = ("#c4e8b8", "#ffe48a", "#ffc891", "#f28b82")

WHITE = "#ffffff"
#: Elements that no lane holds: they lie in shared memory.
SHARED = "#ececec"
#: What is not in the lane (or phase) that a picture points out.
FADED = "#fafafa"

TEXT = "#1a1a1a"
SECOND_TEXT = "#3f3f3f"
SOFT_TEXT = "#5c5c5c"
FADED_TEXT = "#b4b4b4"
GRID = "#8a8a8a"
RULE = "#1a1a1a"
MARK = "#d00000"


def conflict_colour(ways: int) -> str:
    """The colour of an access that takes `ways` wavefronts.

    >>> conflict_colour(1) == CONFLICTS[0], conflict_colour(8) == CONFLICTS[3]
    (True, True)
    """
    if ways < 1:
        raise LanewiseError(f"an access takes at least one wavefront, not {ways}")
    return CONFLICTS[0 if ways == 1 else 1 if ways == 2 else 2 if ways <= 4 else 3]
