"""Records that compiled code and Python share: offsets are aligned, in order, and never overlap."""

import pytest

from lanewise.machine import abi
from lanewise.machine.abi import FaultKind, RecordLayout, field, per_lane
from lanewise.machine.checker import records


def layouts() -> list[type[RecordLayout]]:
    found = [
        each
        for module in (abi, records)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, RecordLayout) and each is not RecordLayout
    ]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.__name__)
def test_fields_are_aligned_and_do_not_overlap(layout: type[RecordLayout]) -> None:
    end = 0
    for name, each in layout.FIELDS.items():
        assert each.offset == getattr(layout, name)
        assert each.offset % each.alignment == 0
        assert each.offset >= end
        end = each.offset + each.bytes * each.elements
    assert end <= layout.BYTES and layout.BYTES % 8 == 0


def test_a_declaration_computes_offsets() -> None:
    class Example(RecordLayout):
        small = field(4)
        wide = field()
        lanes = per_lane()
        last = field(1)

    assert (Example.small, Example.wide, Example.lanes, Example.last) == (0, 8, 64, 192)
    assert Example.BYTES == 256


def test_faults_have_titles() -> None:
    assert FaultKind.OUT_OF_BOUNDS.title == "out of bounds"
    assert FaultKind.READ_ONLY.title == "read-only"
    assert len({each.title for each in FaultKind}) == len(FaultKind)
