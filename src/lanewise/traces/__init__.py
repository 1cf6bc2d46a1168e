"""Traces: a launch on the CPU machine of which every instruction can be looked at afterwards.

`trace.py` makes a `Trace`; a `Step` of it is one instruction of one warp. What the machine logs, and in which
format, is `lanewise.machine.tracer`'s.
"""

from lanewise.hints import not_called
from lanewise.traces.step import Step
from lanewise.traces.trace import Trace, trace

__all__ = ["Step", "Trace", "trace"]

not_called(__name__, "lanewise.trace(kernel[grid, block], …) traces a launch")
