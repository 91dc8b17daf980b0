"""Operators: a graph's Laplacian as every method sees it, something that multiplies blocks and counts products."""

from krylow.operators.base import Operator
from krylow.operators.dense import DenseOperator, DiagonalOperator
from krylow.operators.function import FunctionOperator
from krylow.operators.similar import MagneticOperator, RandomWalkOperator, SimilarOperator
from krylow.operators.sparse import SparseOperator

__all__ = [
    "DenseOperator",
    "DiagonalOperator",
    "FunctionOperator",
    "MagneticOperator",
    "Operator",
    "RandomWalkOperator",
    "SimilarOperator",
    "SparseOperator",
]
