"""How two profiles relate: congruent, compatible, and their one-sided weak forms.

They hold between shapes; a layout or a tensor counts as its shape.
"""

from lanewise.layout.int_tuple import Nested

from .int_tuple import as_int, product
from .modes import shape_of


def congruent(a: object, b: object) -> bool:
    """Whether a and b are nested alike.

    >>> congruent((2, (3, 4)), (1, (1, 1))), congruent((2, 3), (2, (3, 1)))
    (True, False)
    """
    a, b = shape_of(a), shape_of(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def weakly_congruent(a: object, b: object) -> bool:
    """Whether b is nested like a, or deeper where a has an integer.

    >>> weakly_congruent((2, 3), (1, (1, 1))), weakly_congruent((1, (1, 1)), (2, 3))
    (True, False)
    """
    a, b = shape_of(a), shape_of(b)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(weakly_congruent, a, b))
    return True


def compatible(a: Nested, b: Nested) -> bool:
    """Whether every coordinate in a is one in b, with the same size overall.

    >>> compatible((2, 12), (2, (3, 4))), compatible(24, (2, (3, 4))), compatible((2, (3, 4)), 24)
    (True, True, False)
    """
    a, b = shape_of(a), shape_of(b)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(compatible, a, b))
    return as_int(a) == product(b)


def weakly_compatible(a: Nested, b: Nested) -> bool:
    """Whether every coordinate in a is one in b, each extent of b being a multiple.

    >>> weakly_compatible((2, 3), (4, (3, 4))), weakly_compatible(5, (2, 4))
    (True, False)
    """
    a, b = shape_of(a), shape_of(b)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(weakly_compatible, a, b))
    return as_int(a) != 0 and product(b) % as_int(a) == 0
