"""Compiled loops over plain numpy arrays, one module a subject, loaded at first use.

=============== =====================================================================================
``csr``         products of a sparse matrix with a block, and passes over its rows
``graph``       breadth-first search, communities, permutations, aggregates and their coarse graph
``elimination`` static condensation of nodes with one or two neighbours
``factor``      elimination order, elimination tree, LDL^T and its solves
``eigh``        the lowest eigenpairs of a batch of small dense matrices (``rank2``: its inner pass)
``blocks``      Gram-Schmidt
``relaxed``     the relaxed recurrence on small matrices and its adjoint
=============== =====================================================================================

A kernel takes arrays and numbers, writes to arrays it is given or returns new ones, and holds no lock of the
interpreter. It chooses nothing: thresholds, threads and what is done without numba belong to its callers. Nothing
else of krylow is imported here.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from krylow._kernels._compile import available

__all__ = ["available"]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not find_spec(f"{__name__}.{name}"):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
