"""coalesce and filter: fewer modes, the same function."""

from itertools import pairwise

from lanewise.layout import Layout, coalesce, depth, filter, flatten, make_layout, nullspace, rank, size
from layout.layout_strategies import image, law, layouts


def check_coalesce(layout: Layout) -> None:
    result = coalesce(layout)
    assert size(result) == size(layout)
    assert depth(result) <= 1
    assert image(result) == image(layout)
    pairs = list(zip(flatten(result.shape), flatten(result.stride), strict=True))
    assert all(s * d != d2 for (s, d), (_, d2) in pairwise(pairs)), "two modes could be one"
    assert result == Layout(1, 0) or all(s != 1 for s, _ in pairs)
    assert coalesce(result) == result


@law(layouts())
def test_coalesce(layout: Layout) -> None:
    check_coalesce(layout)


@law(layouts())
def test_coalesce_by_mode(layout: Layout) -> None:
    profile = (1,) * len(layout)
    result = coalesce(layout, profile)
    assert rank(result) == rank(layout) and image(result) == image(layout)
    assert result == make_layout([coalesce(m) for m in layout])
    assert coalesce(layout, ()) == make_layout(list(layout)) and coalesce(layout, 1) == coalesce(layout)


@law(layouts())
def test_filter_gives_each_index_of_a_repeated_mode_once(layout: Layout) -> None:
    result = filter(layout)
    assert set(image(result)) == set(image(layout))
    assert all(d != 0 for s, d in zip(flatten(result.shape), flatten(result.stride), strict=True) if s > 1)
    assert size(result) * size(nullspace(layout)) == size(layout)
    assert image(filter(layout, (1,) * len(layout))) == image(make_layout([filter(m) for m in layout]))


@law(layouts())
def test_nullspace(layout: Layout) -> None:
    null = nullspace(layout)
    assert all(layout(null(i)) == 0 for i in range(size(null)))
    assert len(set(image(null))) == size(null) and max(image(null)) < size(layout)
