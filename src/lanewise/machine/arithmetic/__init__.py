"""Instructions that every lane computes for itself."""
