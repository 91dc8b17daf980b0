"""krylow in the tools people have: scikit-learn, PyTorch Geometric and networkx, each in a module of its own."""
