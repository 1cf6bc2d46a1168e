"""Copies of operands that TMA or wgmma cannot take as they lie, made before a product."""
