"""What a GPU returns, held against what lanewise computes. Every test here needs an NVIDIA GPU."""
