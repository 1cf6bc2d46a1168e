"""Static facts about a kernel: what can be told of it before it runs."""
