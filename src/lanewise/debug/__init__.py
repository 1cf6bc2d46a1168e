"""The debugger: a launch that is recorded once and then walked through, forwards and backwards.

`Debugger` knows the position and the moves; the prompt is what people type at, and `adapter` speaks the
Debug Adapter Protocol with editors. All of it stands on `lanewise.traces`.
"""
