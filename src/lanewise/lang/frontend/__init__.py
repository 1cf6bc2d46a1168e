"""The front end: Python functions read, rewritten, traced as kernels, and launched."""
