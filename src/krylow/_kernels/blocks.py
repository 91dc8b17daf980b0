"""Gram-Schmidt."""

from krylow._native import gram_schmidt

__all__ = ["gram_schmidt"]
