"""Textures and surfaces: what a GPU's texture unit does."""
