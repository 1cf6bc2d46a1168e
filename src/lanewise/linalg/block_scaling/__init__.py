"""Block-scaled matrices: mxfp8, mxfp4 and nvfp4, their scale factors, and how numbers become them."""
