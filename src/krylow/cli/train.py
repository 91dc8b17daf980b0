"""``krylow train``: one network on a family of graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import app, console, errors, messages, writable
from krylow.cli.solving import MaxSizeOption


@app.command()
def train(
    data: Annotated[str, typer.Option(help="sbm, a TUDataset by name, or a folder of graphs.")] = "sbm",
    k: Annotated[int, typer.Option(help="Kept frequencies.", min=1)] = 6,
    m: Annotated[int | None, typer.Option(help="Recurrence steps. Default: 2 k.", min=1)] = None,
    probe: Annotated[
        str, typer.Option(help="inverse (the paper's), learned_cg (its author's solver), roots or none.")
    ] = "roots",
    roots: Annotated[int | None, typer.Option(help="Number of roots. Default: 2 k.", min=1)] = None,
    power: Annotated[int, typer.Option(help="p of the inverse polynomial.", min=1)] = 3,
    degree: Annotated[int, typer.Option(help="T of the inverse polynomial.", min=1)] = 7,
    cg_steps: Annotated[int, typer.Option(help="Conjugate-gradient steps a solve.", min=1)] = 10,
    scaled: Annotated[bool, typer.Option(help="Scale L by its Gershgorin bound inside the probe.")] = True,
    loss: Annotated[str, typer.Option(help="subspace, theory or theory_mean.")] = "subspace",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 3e-3,
    weight: Annotated[float, typer.Option(help="lambda of the theory loss.")] = 0.1,
    epochs: Annotated[int, typer.Option(min=1)] = 50,
    batch_size: Annotated[int, typer.Option(min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Of the graphs, the split and all random vectors.")] = 0,
    out: Annotated[Path, typer.Option(help="Where state, curves and network go.")] = Path("runs/train"),
    max_size: MaxSizeOption = None,
) -> None:
    """Train one network on a family of graphs and save it. Interrupted, the same command goes on."""
    with messages():
        writable(out)
        import torch

        from krylow._checks import choice
        from krylow.data import load_family
        from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
        from krylow.training import Recipe, train_network

        torch.set_num_threads(1)  # the tensors are tiny: more threads are slower
        starts = {
            "inverse": lambda: InversePolynomialProbe(degree, power, cg_steps, "cg", scaled),
            "learned_cg": lambda: InversePolynomialProbe(degree, power, cg_steps, "learned_cg", scaled),
            "roots": lambda: RootProbe(roots or 2 * k),
            "none": GaussianProbe,
        }
        start = starts[choice(probe, tuple(starts), "probe")]()
        rooted = probe == "roots"  # a well filtered start needs reorthogonalised steps, and those have no gammas
        if probe == "learned_cg":
            net = UnrolledLanczos(k, m, start, gammas="sigmoid").double()
        else:
            net = UnrolledLanczos(k, m, start, init=0.0 if rooted else 0.03, reorthogonalize=rooted).double()
        family = load_family(data, seed=seed, dtype=torch.float64, max_size=max_size)
        # Learned steps start so flat that the validation error says nothing for many epochs: no early stop.
        patience = epochs if probe == "learned_cg" else Recipe.patience
        recipe = Recipe(loss=loss, lr=lr, weight=weight, epochs=epochs, batch_size=batch_size, patience=patience)

        def show(epoch: int, train_loss: float, error: float) -> None:
            errors.print(f"epoch {epoch} of at most {epochs}: loss {train_loss:.4f}, validation error {error:.4f}")

        trained = train_network(net, family, recipe, seed=seed, folder=out, callback=show)
        console.print_json(data=trained.card)
        console.print(f"network: {out / 'network.safetensors'}, curves: {out / 'curves.csv'}")
