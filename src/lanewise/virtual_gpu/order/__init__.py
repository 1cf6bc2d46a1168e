"""The order of a program's operations on a GPU: what happens before what, and races between streams."""
