"""One warp of each `mma`, its registers loaded by hand in CUDA C++, against the arithmetic: bit for bit."""

from shared_tests import collected_from, hand_loaded

globals().update(collected_from(hand_loaded))
