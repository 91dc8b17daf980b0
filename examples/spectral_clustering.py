r"""
Clusters that are not round, with scikit-learn
==============================================

Two moons cannot be told apart by k-means, whose clusters are round. In the graph that joins each sample to its nearest
neighbours they are two parts with few edges between them, and the lowest non-trivial frequency is nearly constant on
each: k-means on that one number finds them. New samples are placed by their neighbours, with Nystroem's formula.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

from krylow.integrations.sklearn import LowPassEmbedding, LowPassFilter

X, y = make_moons(1000, noise=0.07, random_state=0)
seen, new = X[:800], X[800:]

plain = KMeans(2, n_init=10, random_state=0).fit(seen)
spectral = make_pipeline(LowPassEmbedding(n_components=1), KMeans(2, n_init=10, random_state=0)).fit(seen)
for name, model in {"k-means": plain, "low frequency + k-means": spectral}.items():
    known, unknown = (adjusted_rand_score(t, model.predict(S)) for S, t in ((seen, y[:800]), (new, y[800:])))
    print(f"adjusted Rand index of {name:24s} {known:.3f}, on new samples {unknown:.3f}")

# Every answer comes with its evidence.
answer = spectral[0].subspace_
print(f"{answer.method}: {answer.status.name.lower()}, error at most {float(answer.error_bound):.1e}")

# The same frequencies as a filter: the columns of X without what varies quickly over the graph.
clean, _ = make_moons(1000, noise=None, shuffle=False)
noisy, _ = make_moons(1000, noise=0.1, shuffle=False, random_state=0)
smooth = LowPassFilter(n_components=20).fit_transform(noisy)
before, after = (((Z - clean) ** 2).mean() for Z in (noisy, smooth))
print(f"mean squared error {before:.4f} before and {after:.4f} after the filter")

# %%
fig, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), layout="constrained", sharex=True, sharey=True)
axes[0].scatter(*seen.T, c=plain.labels_, s=4, cmap="coolwarm")
axes[1].scatter(*seen.T, c=spectral[-1].labels_, s=4, cmap="coolwarm")
axes[2].scatter(*noisy.T, s=4, color="lightgray", label="noisy")
axes[2].scatter(*smooth.T, s=4, color="tab:green", label="low-pass")
axes[2].legend(fontsize="small")
for ax, title in zip(axes, ("k-means", "low frequency + k-means", "low frequencies as a filter"), strict=True):
    ax.set(title=title, aspect="equal", xticks=[], yticks=[])
plt.show()
