"""What only Blackwell's data-centre GPUs have: tensor memory, its Tensor Core, cluster launch control."""
