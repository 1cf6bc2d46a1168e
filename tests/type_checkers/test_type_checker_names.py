"""What type checkers are told of the language is what is there when a program runs."""

import ast
import inspect
from pathlib import Path

import lanewise as lw
from lanewise.lang.trace.scalar import Scalar

ANNOTATIONS = Path(lw.lang.__file__).parent / "frontend" / "annotations.py"
#: Annotations that are no formats.
OTHERS = {"Array", "Constexpr", "Ptr", "TensorMap"}


def annotated_names() -> set[str]:
    """The names that annotations.py gives to type checkers: what it assigns and what it passes on."""
    (block,) = (node for node in ast.parse(ANNOTATIONS.read_text()).body if isinstance(node, ast.If))
    assigned = {ast.unparse(node.targets[0]) for node in ast.walk(block) if isinstance(node, ast.Assign)}
    return assigned | {node.asname for node in ast.walk(block) if isinstance(node, ast.alias) and node.asname}


def test_every_public_format_is_a_type() -> None:
    formats = {name for name in dir(lw) if isinstance(getattr(lw, name), lw.Format)}
    assert annotated_names() == formats | OTHERS


def test_a_format_and_a_traced_number_share_one_attribute() -> None:
    """For type checkers a format is the class of traced numbers: names of both must not hide each other.

    `dtype` does, and has a descriptor that tells them apart.
    """
    of_numbers = {name for name in dir(Scalar) if not name.startswith("_")}
    of_formats = {name for name in dir(lw.Format) if not name.startswith("_")}
    assert of_numbers & (of_formats | set(lw.Format.__dataclass_fields__)) == {"dtype"}


def test_constructor_that_checkers_see_is_the_real_one() -> None:
    """The overloads of Scalar stand under TYPE_CHECKING: their parameters are those of the method."""
    tree = ast.parse(inspect.getsource(Scalar))
    overloads = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__" and node.decorator_list
    ]
    assert len(overloads) == 2
    seen = [each.arg for each in (*overloads[1].args.args, *overloads[1].args.kwonlyargs)]
    assert seen == list(inspect.signature(Scalar.__init__).parameters)
