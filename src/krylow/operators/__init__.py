"""Operators: what a graph's Laplacian is to every method, something that multiplies blocks and counts."""

from krylow.operators.base import Operator
from krylow.operators.dense import DenseOperator
from krylow.operators.diagonal import DiagonalOperator
from krylow.operators.function import FunctionOperator
from krylow.operators.sparse import SparseOperator

__all__ = ["DenseOperator", "DiagonalOperator", "FunctionOperator", "Operator", "SparseOperator"]
