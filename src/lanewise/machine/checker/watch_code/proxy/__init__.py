"""Asynchronous operations and the asynchronous proxy: groups, mbarriers, proxy fences, clusters, exits."""
