"""Times the kernels beside what the machine can do: `python -m kernels.bench [--device cuda]`."""
