"""One cell of the experiment: one setting and one seed, trained, chosen by validation, and its answers on dev.

Logged every few steps to a CSV file: loss, gradient norms before clipping. Interrupted, a cell goes on at the last
epoch it had kept, with the numbers it would have had.
"""

from __future__ import annotations

import csv
import io
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from krylow.io.atomic import write_whole
from krylow.training import generator, load_state, save_state
from krylow_lab.records import Record, lookup, record_name
from krylow_lab.table2.classifier import PairClassifier, parameter_count
from krylow_lab.table2.corpus import load_corpus
from krylow_lab.table2.model import build, delicate, mixing_of
from krylow_lab.text.pairs import Pairs

KIND = "table2-cell"
#: Batches that are sorted by length together: as much shuffling as that leaves, with little padding.
BUCKET = 16
#: Pairs at a time where there is no gradient.
EVALUATED = 128
#: Largest gradient norm, of the delicate parameters and of the others.
CLIP = 1.0
#: Share of the steps over which the learning rate rises, with the schedule "warm-up".
WARM_UP = 0.1
#: Steps between two lines of the log.
LOGGED = 10
#: Seconds of work that an interruption may cost.
KEPT_EVERY = 30.0
COLUMNS = ("epoch", "step", "lr", "loss", "gradient_norm", "gamma_gradient_norm")


def run_cell(data: dict[str, Any], setting: dict[str, Any], seed: int, folder: str | Path) -> Record:
    """Train a cell, or return its record where that exists already, in the run's sub-folder ``cells``.

    The seed is that of the split, the first weights, the order and the dropout.
    """
    folder = Path(folder)
    config = {"data": data, "setting": setting}
    known = lookup(folder / "cells", KIND, config, seed)
    if known is not None:
        return known
    name = record_name(KIND, config, seed).removesuffix(".json")
    started, clock = datetime.now(UTC), time.perf_counter()
    training = _Training(data, setting, seed, folder, name)
    training.run()
    seconds = training.before + time.perf_counter() - clock
    record = Record.create(KIND, config, training.results(), seed=seed, started=started, wall_seconds=seconds)
    record.write(folder / "cells")
    shutil.rmtree(training.state, ignore_errors=True)
    return record


class _Training:
    """A training under way: the model, the optimizer and what has been seen so far."""

    def __init__(self, data: dict[str, Any], setting: dict[str, Any], seed: int, folder: Path, name: str) -> None:
        self.setting, self.seed = setting, seed
        self.state, self.log = folder / "states" / name, folder / "logs" / f"{name}.csv"
        self._path = self.state / "state.safetensors"
        corpus = load_corpus(data, folder)
        self.source = corpus.source
        self.fit, self.validation = corpus.split(seed)
        self.dev = corpus.dev
        self.model = build(setting, corpus, seed)
        self.groups = delicate(self.model)
        self.slower = setting.get("gamma_rate", 1.0)  # learning rate of the delicate parameters over the others'
        parts = [part for part in self.groups if part] if self.slower != 1 else [list(self.model.parameters())]
        self.optimizer = torch.optim.Adam([{"params": part} for part in parts], lr=setting["lr"], fused=True)
        self.lengths = (~self.fit.padding).sum(-1)
        self.steps = -(-len(self.fit) // setting["batch"]) * setting["epochs"]
        self.step, self.before = 0, 0.0
        self.lines: list[list[float]] = []
        self.epochs: list[dict[str, float]] = []
        self.best: dict[str, Any] = {}

    def run(self) -> None:
        """Train the remaining epochs."""
        self._resume()
        kept = begun = time.perf_counter()
        already = self.before
        for epoch in range(len(self.epochs), self.setting["epochs"]):
            with torch.random.fork_rng(devices=[]):  # dropout and noise draw from the global generator
                torch.manual_seed(int(torch.randint(2**62, (), generator=generator(self.seed, "dropout", epoch))))
                loss = self._train_epoch(epoch)
            self._look(epoch, loss)
            self._write_log()
            if time.perf_counter() - kept > KEPT_EVERY and epoch + 1 < self.setting["epochs"]:
                self.before = already + time.perf_counter() - begun
                self._keep()
                kept = time.perf_counter()
        self.before = already

    def results(self) -> dict[str, Any]:
        """Return what the record holds."""
        return {
            **self.best,
            "epochs": self.epochs,
            "parameters": parameter_count(self.model),
            "mixing_parameters": parameter_count(mixing_of(self.model)),
            "source": self.source,
        }

    def _train_epoch(self, epoch: int) -> float:
        """Train one epoch and return its mean loss."""
        self.model.train()
        total, pending = 0.0, []
        for batch in _bucketed(self.fit, self.lengths, self.setting["batch"], generator(self.seed, "order", epoch)):
            rate = self._rate()
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            if self.slower != 1 and self.groups[0]:
                self.optimizer.param_groups[0]["lr"] = self.slower * rate
            loss = nn.functional.cross_entropy(_logits(self.model, batch), batch.labels)
            self.optimizer.zero_grad()
            loss.backward()
            gammas, others = (float(nn.utils.clip_grad_norm_(part, CLIP)) if part else 0.0 for part in self.groups)
            self.optimizer.step()
            self.step += 1
            value = loss.item()
            total += value * len(batch)
            pending.append((value, others, gammas))
            if len(pending) == LOGGED:
                means = (sum(column) / LOGGED for column in zip(*pending, strict=True))
                self.lines.append([epoch, self.step, rate, *means])
                pending = []
        return total / len(self.fit)

    def _rate(self) -> float:
        rate = float(self.setting["lr"])
        if self.setting["schedule"] == "constant":
            return rate
        rise = WARM_UP * self.steps
        return rate * min(1.0, (self.step + 1) / rise, (self.steps - self.step) / (self.steps - rise))

    def _look(self, epoch: int, loss: float) -> None:
        """Validate; where that is the best so far, answer dev. Nothing is ever chosen by dev."""
        logits = answers(self.model, self.validation)
        accuracy = float((logits.argmax(-1) == self.validation.labels).double().mean())
        validation_loss = float(nn.functional.cross_entropy(logits, self.validation.labels))
        own = [line for line in self.lines if line[0] == epoch]
        seen = {"train_loss": loss, "validation_accuracy": accuracy, "validation_loss": validation_loss}
        for column in (4, 5):
            seen[f"largest_{COLUMNS[column]}"] = max((line[column] for line in own), default=0.0)
        self.epochs.append({name: float(f"{value:.5g}") for name, value in seen.items()})
        better = (accuracy, -validation_loss)
        if not self.best or better > (self.best["validation"], -self.best["validation_loss"]):
            found = answers(self.model, self.dev).argmax(-1)
            self.best = {
                "best_epoch": epoch + 1,
                "validation": accuracy,
                "validation_loss": validation_loss,
                **scores(found, self.dev.labels),
                "dev_predictions": "".join(map(str, found.tolist())),
            }

    def _keep(self) -> None:
        """Keep model, optimizer and progress, so that an interruption costs at most what follows."""
        progress = {name: getattr(self, name) for name in ("step", "before", "lines", "epochs", "best")}
        save_state(self._path, {"model": self.model.state_dict()}, self.optimizer, self.setting, progress)

    def _resume(self) -> None:
        if self._path.is_file():
            tensors, progress = load_state(self._path, self.optimizer, self.setting)
            self.model.load_state_dict(tensors["model"])
            vars(self).update(progress)

    def _write_log(self) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([f"{value:.6g}" for value in line] for line in self.lines)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.log, text.getvalue())


def answers(model: PairClassifier, pairs: Pairs) -> Tensor:
    """Return the logits ``(pairs, 2)`` of a model at rest, in the order of the pairs."""
    model.eval()
    lengths = (~pairs.padding).sum(-1)
    logits = torch.empty(len(pairs), 2)
    with torch.no_grad():
        for some in lengths.argsort(stable=True).split(EVALUATED):
            logits[some] = _logits(model, _cut(pairs[some], lengths[some]))
    return logits


def scores(found: Tensor, labels: Tensor) -> dict[str, float]:
    """Return accuracy and the F1 of label 1, in percent."""
    found, labels = found.bool(), labels.bool()
    right = float((found == labels).double().mean())
    both, either = int((found & labels).sum()), int(found.sum() + labels.sum())
    return {"accuracy": 100 * right, "f1": 100 * 2 * both / either if either else 0.0}


def _bucketed(pairs: Pairs, lengths: Tensor, size: int, source: torch.Generator) -> Iterator[Pairs]:
    """Yield shuffled batches of pairs of similar lengths, without columns of padding only."""
    batches: list[Tensor] = []
    for chunk in torch.randperm(len(pairs), generator=source).split(size * BUCKET):
        batches += chunk[lengths[chunk].argsort(stable=True)].split(size)
    for number in torch.randperm(len(batches), generator=source).tolist():
        yield _cut(pairs[batches[number]], lengths[batches[number]])


def _cut(pairs: Pairs, lengths: Tensor) -> Pairs:
    n = int(lengths.max())
    parts = (pairs.tokens[:, :n], pairs.segments[:, :n], pairs.padding[:, :n])
    return Pairs(*parts, pairs.labels, pairs.vocab_size)


def _logits(model: PairClassifier, batch: Pairs) -> Tensor:
    logits: Tensor = model(batch.tokens, batch.segments, batch.padding)
    return logits
