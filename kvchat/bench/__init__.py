"""Measurements a user can run: `kvchat bench NAME`, a module or a package for each."""
