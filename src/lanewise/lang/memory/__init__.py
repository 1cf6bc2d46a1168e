"""Memory: pointers, arrays and views, and the layouts and swizzles through which they are indexed."""
