"""Modules with parameters: the unrolled Lanczos network and its probes, and low-pass attention."""

from krylow.nn.attention import LowPassAttention, TransformerBlock
from krylow.nn.graph_learning import GraphLearning, TokenGraph
from krylow.nn.layers import LowPass, SpectralFilter
from krylow.nn.probes import GaussianProbe, InversePolynomialProbe, Probe, RootProbe
from krylow.nn.unrolled import UnrolledLanczos, load

__all__ = [
    "GaussianProbe",
    "GraphLearning",
    "InversePolynomialProbe",
    "LowPass",
    "LowPassAttention",
    "Probe",
    "RootProbe",
    "SpectralFilter",
    "TokenGraph",
    "TransformerBlock",
    "UnrolledLanczos",
    "load",
]
