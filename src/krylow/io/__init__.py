"""Files: graphs and signals are read within a limit of memory, and results are written whole or not at all.

=========  ===========================================================================  ============
what       files                                                                        module
=========  ===========================================================================  ============
graphs     all of the following, and what becomes of edges that are given twice         ``graphs``
matrices   ``.mtx`` (Matrix Market), ``.npz`` (scipy sparse), ``.npy``, ``.mat``        ``matrices``
edges      ``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``, ``.graphml``        ``text``
           Parquet, and pandas and polars tables; which columns are meant               ``tables``
networks   ``.gexf``, ``.gml``, ``.net`` (Pajek), ``.graph`` (METIS), DIMACS            ``networks``
data sets  ``.pt`` (PyG), ``.npz`` with named arrays, folders of OGB                    ``datasets``
signals    ``.npy``, ``.npz``, and tables: ``.csv``, ``.tsv``, ``.txt``                 ``signals``
=========  ===========================================================================  ============

Text may be gzipped (``.csv.gz``, ``.mtx.gz``). Nothing in a file is executed, and no pickle is read but by torch's
reader of weights, which makes tensors and PyG's containers alone.
"""
