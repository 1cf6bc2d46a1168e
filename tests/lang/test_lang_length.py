"""Long kernels: what tracing does grows with the length of a kernel, and no faster."""

import linecache
import sys
from typing import Any

import pytest

import lanewise as lw

STATEMENTS = {
    "branches": "    if x > {n}:\n        y = y + {n}\n",
    "branches with an else": "    if x > {n}:\n        y = y + {n}\n    else:\n        y = y - 1\n",
    "loops": "    for i in lw.range(x):\n        y = y + {n}\n",
    "while loops": "    while y < {n}:\n        y = y + 1\n",
    "statements": "    y = y * 3 + {n}\n",
    "stores": "    p[x + {n}] = y\n",
}


def traced_calls(statement: str, count: int) -> int:
    """Return how many functions Python calls to trace a kernel of so many statements."""
    body = "".join(statement.format(n=number) for number in range(count))
    text = f"@lw.kernel\ndef long(p: lw.Ptr[lw.i32]):\n    x = p[0]\n    y = x\n{body}    p[0] = y\n"
    name = f"<a long kernel of {count}, {hash(statement)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"lw": lw}
    exec(compile(text, name, "exec"), names)
    calls = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        names["long"].ptx()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("name", STATEMENTS)
def test_tracing_is_linear_in_the_length_of_a_kernel(name: str) -> None:
    traced_calls(STATEMENTS[name], 4)  # what is loaded once
    short, long = traced_calls(STATEMENTS[name], 20), traced_calls(STATEMENTS[name], 80)
    assert long < 4.4 * short
