"""A griffe extension: examples in docstrings (`>>> …` up to the next empty line) become blocks of code."""

from typing import Any

import griffe


def fenced(text: str) -> str:
    """Return a docstring with a fence of `pycon` around each example.

    >>> print(fenced("Say it.\\n\\n>>> 1 + 1\\n2"))
    Say it.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            inside = True
            lines.append("```pycon")
        elif inside and not line.strip():
            inside = False
            lines.append("```")
        lines.append(line.strip() if line.strip() == "<BLANKLINE>" else line)
    return "\n".join([*lines, "```"] if inside else lines)


class ExamplesInDocstrings(griffe.Extension):
    """Fences the examples of every object's docstring."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Change the docstring of a class, function, attribute or module that was just read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
