"""Notebooks: whether there is one, and its cells as messages name them, by number: `cell In[2]`."""

import linecache
import sys


def in_notebook() -> bool:
    """Return whether this process computes the cells of a notebook, which shows what is written to stderr."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def notebook_cell(file: str) -> str:
    """Return `cell In[2]` for the file name that IPython has given to that cell; empty for other names.

    The cell's text can then be had from `linecache` under this name, as it could be under the other.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    if number is None:
        return ""
    cell = f"cell In[{number}]"
    if file in linecache.cache:
        linecache.cache.setdefault(cell, linecache.cache[file])
    return cell
