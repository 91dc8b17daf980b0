"""Experiments: they measure and write records; tables and pictures are made from records alone."""
