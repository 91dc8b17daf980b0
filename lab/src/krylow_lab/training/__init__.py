"""Training: whole populations of networks at once, on known spectra, interrupted and resumed at will."""
