"""Asynchronous copies and reductions: cp.async.bulk, tensor copies (TMA), st.async, tensor maps."""
