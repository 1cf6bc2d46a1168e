"""Real kernels of sm_100a in CUDA C++ (`kernels/blackwell`): right, and the same under every schedule."""

from shared_tests import blackwell, collected_from

globals().update(collected_from(blackwell))
