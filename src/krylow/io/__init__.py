"""Files: graphs and signals read within a limit of memory, and written whole or not at all.

=========  ====================================================================================  ==============
what       files                                                                                 module
=========  ====================================================================================  ==============
graphs     ``.mtx`` (Matrix Market), ``.npz`` (scipy sparse), ``.npy`` (dense), edge lists       ``graphs``
           (``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``), ``.graphml``
signals    ``.npy``, ``.npz``, and tables: ``.csv``, ``.tsv``, ``.txt``                          ``signals``
=========  ====================================================================================  ==============

Text may be gzipped (``.csv.gz``, ``.mtx.gz``). Nothing that a file says is executed, and no pickle is read.
"""
