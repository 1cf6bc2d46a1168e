"""LLVM code over a warp: functions, vectors of lanes, threaded code, the scheduler, hooks of the checker."""
