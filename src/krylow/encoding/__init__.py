"""The low frequencies of millions of graphs, from files to files: resumable, in this process, in several, or on Ray."""

from krylow.encoding.engines import RayExecutor
from krylow.encoding.files import Encoded, encode

__all__ = ["Encoded", "RayExecutor", "encode"]
