"""Modules with parameters: the unrolled Lanczos network and its probes."""

from krylow.nn.probes import GaussianProbe, InversePolynomialProbe, Probe
from krylow.nn.root_probe import RootProbe
from krylow.nn.storage import load
from krylow.nn.unrolled import UnrolledLanczos

__all__ = ["GaussianProbe", "InversePolynomialProbe", "Probe", "RootProbe", "UnrolledLanczos", "load"]
