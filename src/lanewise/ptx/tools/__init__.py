"""Outside tools, each behind one function: NVRTC and nvcc compile, ptxas assembles, nvdisasm disassembles."""
