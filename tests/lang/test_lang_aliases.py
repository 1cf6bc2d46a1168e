"""Values that begin as one object and part, or meet: each location has a register of its own.

Every kernel here runs on the CPU machine and, as plain Python, in the oracle; the outcomes agree.
"""

import importlib.util
import re
import sys
import textwrap
from pathlib import Path

import pytest

import lanewise as lw
from everything import sampled
from lanewise.lang.frontend import containers
from lang.compare_kernels import arguments, compare, loaded
from lang.random_kernels import SIGNATURE

HEAD = """from argparse import Namespace
from types import SimpleNamespace
import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


class Box:
    def __init__(self, v, w):
        self.v, self.w = v, w


class Slim:
    __slots__ = ("v", "w")

    def __init__(self, v, w):
        self.v, self.w = v, w


@lw.device
def advance(acc, a, b, n):
    for i in lw.range(n):
        acc[0] = mma(a, b, acc[0])
    return acc[0]


def make_counter(start):
    count = start

    def bump(x):
        nonlocal count
        count = count + x
        return count

    return bump


TOTAL = None


def begin(x):
    global TOTAL
    TOTAL = x


def more(x):
    global TOTAL
    TOTAL = TOTAL + x
    return TOTAL


def lower(items):
    items[0] = items[0] - 1
    return items[0]


"""
START = """
    lane = lw.lane_id()
    a, one, two = mma.a.full(1), mma.b.full(1), mma.b.full(2)
    z = mma.zeros()
"""
TWO_PRODUCTS = """
z = mma.zeros()
{make}
{loop}
    {first} = mma(a, one, {first})
    {second} = mma(a, two, {second})
real[{row} + lane] = {first}[0].to(lw.f64)
real[{row} + 32 + lane] = {second}[0].to(lw.f64)
real[{row} + 64 + lane] = z[0].to(lw.f64)
"""
#: How one fragment comes to be in two locations, and these.
HOLDERS = [
    ("acc = [mma.zeros()] * 2", "acc[0]", "acc[1]"),
    ("acc = [z, z]", "acc[0]", "acc[1]"),
    ("acc = {'a': z, 'b': z}", "acc['a']", "acc['b']"),
    ("acc = [[z] * 2] + [[z, z]]", "acc[0][1]", "acc[1][0]"),
    ("acc = Box(z, z)", "acc.v", "acc.w"),
    ("acc = Slim(z, z)", "acc.v", "acc.w"),
    ("acc = Box([z], [z])", "acc.v[0]", "acc.w[0]"),
    ("acc = ([z], {'k': z})", "acc[0][0]", "acc[1]['k']"),
    ("p = q = z", "p", "q"),
    ("acc, q = [z], z", "acc[0]", "q"),
    ("acc = [z]", "acc[0]", "z"),
]
LOOPS = ["for i in lw.range(n):", "j = n\nwhile (j > 0):\n    j -= 1", "if n > 2:", "for i in range(2):"]

CASES = {
    "a dict whose values swap": """
        d = {"a": lane, "b": n}
        for i in lw.range(n):
            d["a"], d["b"] = d["b"], d["a"] + 1
        mid[lane], mid[32 + lane] = d["a"], d["b"]
    """,
    "two names for one list": """
        p = [lane, n]
        q = p
        for i in lw.range(n):
            p[0] = p[0] + q[1]
            if q[0] > 20:
                q[1] = p[1] - 1
        mid[lane], mid[32 + lane] = q[0], p[1]
    """,
    "lists that trade places": """
        rows = [[lane, n], [n, lane]]
        for i in lw.range(n):
            rows[0], rows[1] = rows[1], rows[0]
            rows[0][0] = rows[0][0] + 1
        mid[lane], mid[32 + lane] = rows[0][0], rows[1][0]
    """,
    "a name that parts from a list in one branch": """
        p = [lane, n]
        q = p
        if lane > 4:
            q = [n, lane]
        mid[lane], mid[32 + lane] = q[0], p[0]
    """,
    "a choice between two lists, one of them twice": """
        p = [lane, n]
        q = p if lane > 4 else p
        q[0] = q[0] + 5
        mid[lane] = p[0]
    """,
    "a closure's variable": """
        bump = make_counter(lane)
        for i in lw.range(n):
            if i > 1:
                bump(n)
            else:
                bump(lw.i32(1))
        mid[lane] = bump(lw.i32(0))
    """,
    "variables of one name in the kernel and in a closure": """
        count, bump = n, make_counter(lane)
        def later(z):
            def deeper(count):
                return lambda: count + z
            return deeper(z)() + count
        for i in lw.range(n):
            bump(lw.i32(1))
            if i > 1:
                count = count + 2
        mid[lane], mid[32 + lane] = bump(lw.i32(0)), later(lane)
    """,
    "a variable that a function inside reads, replaced in one loop and changed in the next": """
        v = [lane, n]
        def later(k):
            return k + v[1]
        for i in lw.range(n):
            if i > 1:
                v = [v[1], i]
        for i in lw.range(n):
            v[0] = later(v[0])
        mid[lane] = v[0]
    """,
    "a condition that changes what it tests": """
        s, rounds = [n + 4], lw.i32(0)
        while lower(s) > 2:
            rounds += 1
        mid[lane], mid[32 + lane] = rounds, s[0]
    """,
    "an operand of `and` that changes a list": """
        s = [lane]
        if lane > 3 and lower(s) > 6:
            s[0] = s[0] * 2
        mid[lane] = s[0]
    """,
    "an object in an object": """
        b = Box(Box(lane, n), None)
        for i in lw.range(n):
            b.v.v, b.v.w = b.v.w, b.v.v + 1
        mid[lane] = b.v.v
    """,
    "a device function that changes what it is given": """
        acc = [z] * 2
        if n > 1:
            advance(acc, a, one, n)
        mid[lane], mid[32 + lane] = acc[0][0].to(lw.i32), acc[1][0].to(lw.i32)
    """,
    "a fragment changed in place under another name": """
        f = z
        for i in lw.range(n):
            f[1] = f[1] + 1.0
        mid[lane] = z[1].to(lw.i32)
    """,
    "a part of a fragment that a loop leaves alone": """
        for i in lw.range(n):
            z[3] = 1.0
            z = mma(a, one, z)
        mid[lane] = z[0].to(lw.i32)
    """,
    "a variable that a function inside reads, bound in one branch": """
        v = lane
        def later(k):
            return k + v
        if lane > 3:
            v = n
        else:
            mid[32 + lane] = v
        mid[lane] = later(lane)
    """,
    "a class as a place for variables": """
        Box.total = lane
        for i in lw.range(n):
            Box.total = Box.total + i
            if i > 1:
                Box.total = Box.total * 2
        mid[lane] = Box.total
    """,
    "a global variable that plain functions bind": """
        begin(lane)
        for i in lw.range(n):
            if i > 0:
                more(n)
        mid[lane] = more(lane)
    """,
    "a list that one slot leaves while another keeps it": """
        p = [lane, n]
        b, c = Box(p, n), Slim(p, n)
        for i in lw.range(n):
            b.v = [b.v[1], lane + i]
        mid[lane], mid[32 + lane], mid[64 + lane] = b.v[0], p[0], c.v[1]
    """,
    "an object of a class of Python's own": """
        space, other = SimpleNamespace(x=lane), Namespace(x=lane, y=n)
        for i in lw.range(n):
            space.x, other.x = other.x, space.x + other.y
        mid[lane], mid[32 + lane] = space.x, other.x
    """,
    "a class that a name holds": """
        kind = Box
        for i in lw.range(n):
            b = kind(lane, i)
            mid[lane] = b.v + b.w
            kind = Box
    """,
    "values that become one": """
        p, q = [lane], [n]
        for i in lw.range(n):
            p = q
        mid[lane] = p[0]
    """,
}


def body(text: str) -> str:
    return HEAD + SIGNATURE + START + textwrap.indent(textwrap.dedent(text).strip("\n"), "    ") + "\n"


@sampled(8)
@pytest.mark.parametrize("loop", LOOPS)
def test_one_fragment_in_two_locations_parts(loop: str, tmp_path: Path) -> None:
    parts = [
        TWO_PRODUCTS.format(make=make, first=first, second=second, loop=loop, row=96 * number)
        for number, (make, first, second) in enumerate(HOLDERS)
    ]
    outcome = compare(body("".join(parts)), tmp_path, sizes=(3,))
    assert outcome.word == "same", outcome


@sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_locations_hold_what_python_says(name: str, tmp_path: Path) -> None:
    outcome = compare(body(CASES[name]), tmp_path)
    assert outcome.word == "same", outcome


REFUSED = {
    "a fragment in two places, changed in place": (
        """
        acc = [z] * 2
        for i in lw.range(n):
            acc[0][0] = acc[0][0] + 1.0
            acc[1] = mma(a, one, acc[1])
        """,
        "make a fragment for each before it, as in [mma.zeros() for _ in range(2)]",
    ),
    "a list that is another one's alias in one branch": (
        """
        p, q = [lane], [n]
        if lane > 3:
            p = q
        p[0] = lane
        mid[lane] = q[0]
        """,
        "to change one of them in place, make a list for each before it",
    ),
    "two slots of one object hold a list, and one leaves it": (
        """
        p = [lane, n]
        b = Box(p, p)
        for i in lw.range(n):
            b.v = [b.v[1], lane + i]
        mid[lane] = b.w[0]
        """,
        "two values of b begin as one list and part",
    ),
    "a choice between two lists, changed in place": (
        """
        p, q = [lane], [n]
        r = p if lane > 4 else q
        r[0] = r[0] + 5
        mid[lane], mid[32 + lane] = p[0], q[0]
        """,
        "to change one of them in place, make a list for each before it",
    ),
    "a list that grows in one branch": (
        """
        p = [lane]
        if lane > 3:
            p.append(n)
        mid[lane] = len(p)
        """,
        "p is a list of 2 and a list of 1 after the branches",
    ),
    "a list that a branch of a loop replaces": (
        """
        q = [lane]
        r = q
        for i in lw.range(0, 2):
            if lane > 5:
                r = [lw.i32(50)]
            r[0] = r[0] + 1
        mid[lane] = q[0]
        """,
        "begin as one list and part, or become one",
    ),
    "lists that change places while another name holds one": (
        """
        q, r = [lane], [n]
        u = r
        for i in lw.range(0, 2):
            r, q = q, r
            r[0] = r[0] + 1
        mid[lane] = u[0]
        """,
        "begin as one list and part, or become one",
    ),
    "lists that change places, and one is changed after the loop": (
        """
        p, r = [lane], [n]
        u = r
        for i in lw.range(0, lane % 2):
            p, r = r, p
        p[0] = p[0] + 1
        mid[lane] = u[0]
        """,
        "begin as one list and part, or become one",
    ),
    "one list under two names that change places in loops in loops": (
        """
        p = [lane]
        q = p
        for i in lw.range(0, 2):
            for j in lw.range(0, 3):
                q[0] = q[0] + 1
                p, q = q, p
        mid[lane] = p[0]
        """,
        "begin as one list and part, or become one",
    ),
    "an assignment in a condition": (
        """
        k = lane
        while (k := k - 1) > 3:
            pass
        mid[lane] = k
        """,
        "`:=` does not work in the condition of a `while`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_the_running_kernel_knows_is_refused(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]
    with pytest.raises(lw.KernelError) as raised:
        loaded(body(text), tmp_path).program.ptx("sm_90")
    assert message in str(raised.value)


READ = """
    items, box, pair, row = [lane, n], Box(lane, [n, lane]), (lane + 1, n + 1), {"a": lane * 3}
    bump, place, total = make_counter(lane), x + lane, lw.i32(0)
    def reads():
        return items[0] + box.v + box.w[1] + pair[1] + row["a"] + place[0] + z[0].to(lw.i32) + lane
    for i in lw.range(n):
        {body}
    mid[lane] = total + bump(lane)
"""


@pytest.mark.parametrize(
    "body",
    [
        "vec[32 * i + lane] = reads()",
        "if lane > i:\n            vec[32 * i + lane] = reads()",
        "while reads() > i:\n            vec[32 * i + lane] = n",
    ],
)
def test_what_a_loop_only_reads_is_moved_nowhere(body: str, tmp_path: Path) -> None:
    source = HEAD + SIGNATURE + START + READ.replace("{body}", body)
    assert compare(source.replace("while", "if"), tmp_path).word == "same"
    text = loaded(source, tmp_path).program.ptx("sm_90")
    inside = text[text.index("$loop:") : text.index("$endloop:")]
    assert not re.findall(r"mov\.\S+ %.*", inside)


def test_a_module_may_have_the_name_of_one_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of a user's `queue.py` are the user's."""
    text = body("b = Box(lane, n)\nif lane > 3:\n    b.v = n\nmid[lane] = b.v")
    path = tmp_path / "queue.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("queue", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "queue", module)
    containers._is_package_of_user.cache_clear()
    spec.loader.exec_module(module)
    given = arguments(9)
    module.program[1, 32](*(value for _, value in given))
    containers._is_package_of_user.cache_clear()
    assert given[2][1][:6].tolist() == [0, 1, 2, 3, 9, 9]
