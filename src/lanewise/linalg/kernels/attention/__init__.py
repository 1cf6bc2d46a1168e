"""Attention on Hopper: keys and values by TMA, products by wgmma, softmax in registers between them."""
