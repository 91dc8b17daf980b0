"""Files: graphs and signals are read within a limit of memory, and results are written whole or not at all.

=========  ===========================================================================  ===========
what       files                                                                        module
=========  ===========================================================================  ===========
graphs     ``.mtx`` (Matrix Market), ``.npz`` (scipy sparse), ``.npy`` (dense),         ``graphs``
           edge lists (``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``),
           ``.graphml``
signals    ``.npy``, ``.npz``, and tables: ``.csv``, ``.tsv``, ``.txt``                 ``signals``
=========  ===========================================================================  ===========

Text may be gzipped (``.csv.gz``, ``.mtx.gz``). Nothing in a file is executed, and no pickle is read.
"""
