"""The functions of the watch: they are declared, their calls are checked, and those in use are written."""

import re
from typing import cast

import pytest

from lanewise.jit.compiled_functions import Function
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker.records import BlockWatch, WarpClock
from lanewise.machine.checker.watch_code.access_hook import access
from lanewise.machine.checker.watch_code.clocks.happens_before import ordered
from lanewise.machine.checker.watch_code.clocks.vector_clocks import set_floors
from lanewise.machine.checker.watch_code.proxy.proxy_fences import fenced
from lanewise.machine.checker.watch_code.shadow.request_costs import sectors
from lanewise.machine.checker.watch_code.watch_module import WatchCode, WatchModule, written
from lanewise.machine.codegen.function_code import Record


@written(lambda code: code.done())
def caller(frame: WarpFrame, watch: BlockWatch, clock: WarpClock, number: int) -> None:
    """A function of which code is written."""
    raise NotImplementedError


def code_of_caller() -> WatchCode:
    module = WatchModule(follows_async=True)
    module.declared(caller)
    return WatchCode(module, caller)


def test_a_call_by_names_is_written() -> None:
    code = code_of_caller()
    answer = code.run(
        ordered, watch=code.record("watch"), epoch=code["number"], who=0, lanes=code["number"], me=3
    )
    assert answer.type.bits == 64
    is_clear = code.run(fenced, watch=code.record("watch"), epoch=1, lanes=1, shared=answer.equals(1), me=0)
    assert is_clear.type.bits == 64


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("a wrong name", {"lane": 1}, "fenced(watch, epoch, lanes, shared, me) has no parameter `lane`"),
        ("a record of another kind", {"watch": "clock"}, "BlockWatch, and a record WarpClock is given"),
        ("a record for a number", {"epoch": "watch"}, "is a number, and a record BlockWatch is given"),
        ("a number for a record", {"watch": 1}, "is a record BlockWatch, and a number is given"),
        ("a number for a condition", {"shared": 1}, "is a condition, and a number is given"),
        ("a condition for a number", {"epoch": True}, "is a number, and a condition is given"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_an_error_when_the_code_is_written(
    name: str, changes: dict[str, object], message: str
) -> None:
    code = code_of_caller()
    given: dict[str, object] = {"watch": "watch", "epoch": 5, "lanes": 1, "shared": True, "me": 0} | changes
    arguments = {
        key: code.record(value) if isinstance(value, str) else cast(int, value)
        for key, value in given.items()
    }
    with pytest.raises(TypeError, match=re.escape(message)):
        code.run(fenced, **arguments)


def test_a_call_with_too_few_arguments() -> None:
    code = code_of_caller()
    with pytest.raises(TypeError, match=re.escape("the call of set_floors(watch) lacks `watch`")):
        code.run(set_floors)


def test_a_record_whose_layout_is_not_known() -> None:
    code = code_of_caller()
    with pytest.raises(TypeError, match="a record LaneLongs, and a record RecordLayout is given"):
        code.run(sectors, addresses=Record(code, code["number"]), active=1, size=4)


@pytest.mark.parametrize("follows_async", [False, True])
def test_what_is_called_is_written_once(follows_async: bool) -> None:
    module = WatchModule(follows_async)
    module.declared(cast(Function[..., None], access))
    module.finish()
    undefined = [each.name for each in module.functions.values() if not each.blocks]
    assert all(name.startswith("llvm.") for name in undefined)
    assert ("written_over" in module.functions) is follows_async
