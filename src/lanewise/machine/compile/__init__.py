"""From a resolved program to images of machine code."""
