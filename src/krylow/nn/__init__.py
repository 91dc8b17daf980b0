"""Modules with parameters: the unrolled Lanczos network and its probes, and low-pass attention."""

from krylow.nn.attention import LowPassAttention
from krylow.nn.graph_learning import GraphLearning, TokenGraph
from krylow.nn.probes import GaussianProbe, InversePolynomialProbe, Probe
from krylow.nn.root_probe import RootProbe
from krylow.nn.storage import load
from krylow.nn.transformer import NoMixing, PairClassifier, SelfAttention, TransformerBlock, parameter_count
from krylow.nn.unrolled import UnrolledLanczos

__all__ = [
    "GaussianProbe",
    "GraphLearning",
    "InversePolynomialProbe",
    "LowPassAttention",
    "NoMixing",
    "PairClassifier",
    "Probe",
    "RootProbe",
    "SelfAttention",
    "TokenGraph",
    "TransformerBlock",
    "UnrolledLanczos",
    "load",
    "parameter_count",
]
