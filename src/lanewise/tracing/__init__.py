"""Traces: a launch on the CPU machine of which every instruction can be looked at afterwards.

`run.py` makes a `Trace`; a `Step` of it is one instruction of one warp. What the machine logs, and in which
format, is `lanewise.machine.tracer`'s.
"""

from lanewise.tracing.run import trace
from lanewise.tracing.step import Step
from lanewise.tracing.trace import Trace

__all__ = ["Step", "Trace", "trace"]
