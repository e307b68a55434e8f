"""Kernels of jax: the plain forms are in custom_kernel."""
