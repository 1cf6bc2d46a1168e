"""Generation of LLVM code for a warp: functions, vectors of lanes, threaded code, the scheduler, hooks."""
