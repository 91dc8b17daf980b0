"""Gradients at the answer: of the projector, of an iterative solve, of a function of a matrix."""
