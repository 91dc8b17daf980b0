r"""
Positional encodings of a whole PyG data set
============================================

``AddLowFrequencyPE`` stands where ``AddLaplacianEigenvectorPE`` stood, with the same arguments and attribute. Two
things are new. A whole data set is encoded in a few dense batches instead of graph by graph. And where eigenvectors
are arbitrary (signs, rotations inside repeated frequencies), ``output="diagonal"`` gives what is not.
"""

import time

import matplotlib.pyplot as plt
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE
from torch_geometric.utils import barabasi_albert_graph

from krylow.integrations.pyg import AddLowFrequencyPE

K = 6
torch.manual_seed(0)
sizes = torch.randint(20, 60, (300,)).tolist()
graphs = [Data(edge_index=barabasi_albert_graph(n, 2), num_nodes=n) for n in sizes]

peer, ours = AddLaplacianEigenvectorPE(K, is_undirected=True), AddLowFrequencyPE(K)
for name, encode in {
    "PyG, one by one": lambda: [peer(g) for g in graphs],
    "batched": lambda: ours.batched(graphs),
}.items():
    encode()  # warm up
    start = time.perf_counter()
    encoded = encode()
    print(f"{name:16s} {1e3 * (time.perf_counter() - start):6.1f} ms for {len(graphs)} graphs")
print("collated:", tuple(Batch.from_data_list(encoded).laplacian_eigenvector_pe.shape))

# A ring looks the same from every node, and every frequency but one comes twice: vectors tell its nodes apart by an
# arbitrary choice, the diagonal of the projector does not.
ring = torch.arange(10)
ring = Data(
    edge_index=torch.cat([torch.stack([ring, ring.roll(1)]), torch.stack([ring.roll(1), ring])], 1), num_nodes=10
)
vectors = AddLowFrequencyPE(2, "pe", sign="largest")(ring).pe
diagonal = AddLowFrequencyPE(2, "pe", output="diagonal")(ring).pe
print(f"spread over the nodes of a ring: vectors {vectors.std():.3f}, diagonal {diagonal.std():.1e}")

# %%
angle = 2 * torch.pi * torch.arange(10) / 10
fig, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
for ax, encoding, title in zip(axes, (vectors[:, 0], diagonal[:, 0]), ("a vector", "the diagonal"), strict=True):
    ax.plot(angle.cos().repeat(2), angle.sin().repeat(2), color="lightgray", zorder=1)
    ax.scatter(angle.cos(), angle.sin(), c=encoding, s=150, cmap="coolwarm", vmin=-0.5, vmax=0.5)
    ax.set(title=f"a ring, by {title}", aspect="equal", xticks=[], yticks=[], frame_on=False)
plt.show()
