"""What CUDA C++ has besides arithmetic: locks, variables, structs, templates, arrays, printf, assert."""

from shared_tests import collected_from, language

globals().update(collected_from(language))
