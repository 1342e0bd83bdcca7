"""Kernels for NVIDIA GPUs, in Triton. Importing this package imports neither Triton nor CUDA."""
