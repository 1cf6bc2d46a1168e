"""Plans for products: the model, what was measured, and what `lw.plan` tells."""
