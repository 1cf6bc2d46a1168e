"""Tiles under CuTe's names: tensors cut into tiles, shared out among threads, copied and multiplied."""
