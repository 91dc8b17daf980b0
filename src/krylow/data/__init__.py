"""Data: graphs to train and test on, drawn or read, reproducible from a seed."""

from krylow.data.families import (
    GraphFamily,
    connected_subgraphs,
    load_family,
    read_folder,
    sbm,
    sbm_labels,
    split_family,
)
from krylow.data.tudataset import DataNotFoundError, cache_folder, data_folder, read_tudataset, tudataset
from krylow.io.graphs import GraphFile, read_graph
from krylow.io.signals import read_signals

__all__ = [
    "DataNotFoundError",
    "GraphFamily",
    "GraphFile",
    "cache_folder",
    "connected_subgraphs",
    "data_folder",
    "load_family",
    "read_folder",
    "read_graph",
    "read_signals",
    "read_tudataset",
    "sbm",
    "sbm_labels",
    "split_family",
    "tudataset",
]
