"""Static analyses of a kernel: facts that can be derived before it runs."""
