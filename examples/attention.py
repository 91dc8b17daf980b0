r"""
Low-pass attention on pairs of token sequences
==============================================

The task: is the second part of a sequence a shuffled, partly changed copy of the first? Each part alone says nothing,
so a model has to compare them. A graph learned from the token embeddings joins equal words of the two parts; the
low-pass filter averages each word with its copy, and leaves a word that has none as it is.

The models are alike but for the mixing. The last two are controls: the same graph without a spectral filter, and
self-attention whose queries and keys come from the token embeddings alone and start as the identity. They do as well:
what solves the task is the graph. Runs in seconds on one core.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import krylow as kl
from krylow_lab.table2.classifier import NoMixing, PairClassifier, SelfAttention, parameter_count
from krylow_lab.text.pairs import token_pairs

EMBED, STEPS = 32, 64


def accuracy(model, pairs):
    model.eval()
    with torch.no_grad():
        found = model(pairs.tokens, pairs.segments, pairs.padding).argmax(-1)
    model.train()
    return float((found == pairs.labels).double().mean())


def train(mixing, train_pairs, test_pairs, steps=STEPS):
    torch.manual_seed(0)
    model = PairClassifier(train_pairs.vocab_size, [mixing], embed_dim=EMBED, max_tokens=32, dropout=0.0)
    gammas = [p for name, p in model.named_parameters() if "upsilon" in name]
    rest = [p for name, p in model.named_parameters() if "upsilon" not in name]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps * 64 // len(train_pairs)):
        for batch in train_pairs.batches(64, generator=generator):
            loss = nn.functional.cross_entropy(model(batch.tokens, batch.segments, batch.padding), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            for group in (gammas, rest):  # apart, or the gammas' large gradients drown the others
                nn.utils.clip_grad_norm_(group, 1.0)
            optimizer.step()
    return accuracy(model, test_pairs)


def mixings():
    torch.manual_seed(0)
    graph = {"distance": 8.0}
    return {
        "no mixing": NoMixing(EMBED),
        "self-attention": SelfAttention(EMBED, 4),
        "low-pass, unrolled": kl.nn.LowPassAttention(EMBED, 4, cutoff=0.5, m=20, **graph),
        "low-pass, block": kl.nn.LowPassAttention(EMBED, 4, filter="block", cutoff=0.5, m=24, **graph),
        "low-pass, exact": kl.nn.LowPassAttention(EMBED, 4, filter="exact", cutoff=0.5, **graph),
        "the same graph, D^-1 W": kl.nn.LowPassAttention(EMBED, 4, filter="kernel", **graph),
        "self-attention, identity": SelfAttention(EMBED, 4, identity=True),
    }


def main():
    train_pairs, test_pairs = (
        token_pairs(count, words=40, lengths=(6, 10), generator=torch.Generator().manual_seed(seed))
        for seed, count in enumerate((2048, 512))
    )
    results = {}
    for name, mixing in mixings().items():
        results[name] = train(mixing, train_pairs, test_pairs)
        print(f"{name:26s} {parameter_count(mixing):5d} parameters   test accuracy {results[name]:.3f}")
    return results


if __name__ == "__main__":
    torch.set_num_threads(1)
    accuracies = main()
    fig, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
    colors = ["tab:orange" if name.startswith("low-pass") else "tab:gray" for name in accuracies]
    ax.barh(list(accuracies), list(accuracies.values()), color=colors)
    ax.invert_yaxis()
    ax.set(xlim=(0.4, 1), xlabel="test accuracy; 0.5 is guessing")
    plt.show()
