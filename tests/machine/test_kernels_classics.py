"""Kernels that every CUDA programmer writes once: reductions, softmax, histograms, transposes, attention."""

from shared_tests import classics, collected_from

globals().update(collected_from(classics))
