"""Training of populations: many networks of one shape at once, on known spectra, resumed where interrupted."""
