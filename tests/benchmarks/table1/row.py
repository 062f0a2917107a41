"""A row of the table, measured: sweeps, trainings and attacks of the product's own, under names that the row has.

What is in the storage folder is not done again, so that a row that was stopped goes on, and the rows of a corpus share
its private points.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from sweeps.config.loading import load_config, load_recipe
from sweeps.engine.jobs.attack import attack, find_target
from sweeps.engine.jobs.release import release, run_proxy, searched
from sweeps.engine.prepare import check_encoders
from sweeps.engine.progress import Progress
from sweeps.results.front import pareto_front
from sweeps.store.sweep import Sweep
from sweeps.text.signals import going_on_with
from tests.benchmarks.machine import machine, versions
from tests.benchmarks.table1.points import (
    EPSILONS,
    PARTS,
    Entry,
    Measurement,
    Note,
    delta_of,
    is_generated,
    names_of,
    paper_entries,
)
from trainables.records.files import read_json_if_any
from trainables.training.public_heads import NAMES
from trainables.training.references import Kind

Part = Callable[["Run", Progress], tuple[list[Entry], list[Note]]]
"""Measures one point, or several of one sweep."""

_FULL_SIZE = 1_000_000
"""Utterances of the generated corpora that their recipes are for."""
_REFERENCES = 4
"""Models that LiRA compares with."""
_SISTERS = {
    "health": ("video", "communication"),
    "communication": ("health", "video"),
    "video": ("health", "communication"),
}
"""Generated corpora that stand in as public ones."""
_NAME_PRIOR, _SCHEMA_WEIGHT, _SLOT_PRIOR = 0.5, 0.5, 0.5
"""Weights of the scores of names, if the encoder has learnt some; of heads of the samples; of the slots of intents."""
_TRIALS, _LONG_TRIALS = 6, {"bert": 2, "clc_nlu_eval": 2}
"""Of a search, and of the paper's mechanism where they are long: with them a row takes two cores at most 90 minutes."""
_BERT_EPOCHS = {"atis": 10, "snips": 4, "nlu_eval": 6}
"""Of the paper's mechanism. The recipes' 15 to 30 would take two cores half an hour to an hour a trial."""
_BERT_POINTS = [
    {"C": 1.0, "z0": 1e-5, "decay": "none"},
    {"C": 1.0, "z0": 1.0, "decay": "linear", "tau": 0.02},
    {"C": 1.0, "z0": 4e-5, "decay": "none"},
    {"C": 1.0, "z0": 8e-5, "decay": "none"},
]
"""What BERT's few trials begin with: so little noise that clipping alone is seen, the paper's best guess, and a little
more noise. Its norm grows with the weights, of which BERT has 22 million: at 4e-4 SGD's SER of 6 on SNIPS is 29."""
_EPOCHS_AND_NOISE = {
    "bert_nlu_eval": [(6, 4e-5), (4, 3e-5), (5, 4e-5), (4, 2e-5), (5, 5e-5)],
    "clc_nlu_eval": [(36, 1e-6), (28, 1e-6), (20, 1e-6)],
}
"""What rows begin with where noise alone does not reach all of the paper's points: epochs are searched there too."""
_GENERATED_EPOCHS = 2
"""Of the paper's mechanism on fewer utterances than the recipes are for: after one, SGD's validation SER is 0.3 %."""


@dataclass(frozen=True)
class Run:
    """How a row is measured: `encoder` is what the private points' heads stand on."""

    row: str
    trials: int | None
    """Of each search; None: so many that a row takes two cores an hour and a half (`trials_of`)."""
    utterances: int
    seeds: int
    encoder: str
    storage: Path
    tracking_uri: str | None
    command: str
    """What measures such a row, for the table."""
    again: str
    """What goes on with this one where it was stopped, in the folder where this process runs."""
    parts: tuple[str, ...] = tuple(PARTS)
    """Those of `PARTS` that are measured."""
    epsilons: tuple[int, ...] = EPSILONS
    """Those of the private points that are measured."""

    @property
    def model(self) -> str:
        """The model, as recipes name it."""
        return self.row.partition("_")[0]

    @property
    def corpus(self) -> str:
        """The corpus, as recipes name it."""
        return self.row.partition("_")[2]

    def trials_of(self, part: str) -> int:
        """Return the trials of a search of one of `PARTS`."""
        if self.trials is not None:
            return self.trials
        few = _LONG_TRIALS if part == "mechanism" else {}
        return few.get(self.row, few.get(self.model, _TRIALS))

    @property
    def generated(self) -> bool:
        """True for a generated corpus."""
        return is_generated(self.row)

    @property
    def corpus_name(self) -> str:
        """The corpus as part of a name, with its size if that is chosen."""
        return f"{self.corpus}-{self.utterances}" if self.generated else self.corpus


def check(run: Run) -> None:
    """Check that the recipes of the row take the settings, before anything is made.

    Raises:
        UserError: one line that names them.
    """
    settings = [paper_mechanism(run)] if "mechanism" in run.parts else []
    for part in {"private", "schema"} & set(run.parts):
        settings += [private_recipe(run, epsilon, schema=part == "schema") for epsilon in run.epsilons]
    recipes = [load_recipe(*one)[1] for one in settings]
    check_encoders([recipe.baseline() for recipe in recipes])


def measure(run: Run, progress: Progress) -> Iterator[tuple[list[Entry], Measurement]]:
    """Measure each private point, which takes minutes, then SGD and the front of the paper's mechanism.

    Yields:
        All that this run has measured of one of its parts so far, and the paper's points.

    Raises:
        UserError: as the sweeps; where the storage folder has a sweep of this name with other settings.
        TrialError: for a training or an attack that failed.
        SweepStopped: when it was stopped; the same command goes on.
    """
    parts: dict[str, list[Part]] = {
        "private": [functools.partial(_private, epsilon=epsilon) for epsilon in run.epsilons],
        "schema": [functools.partial(_private, epsilon=epsilon, schema=True) for epsilon in run.epsilons],
        "mechanism": [_paper_mechanism],
    }
    for name in run.parts:
        entries, notes = paper_entries(run.row), list[Note]()
        for part in parts[name]:
            with going_on_with(run.again):
                found, more = part(run, progress)
            entries, notes = [*entries, *found], [*notes, *more]
            trials, today = run.trials_of(name), f"{date.today()}"
            yield entries, Measurement(*names_of(run.row), today, trials, machine(), versions(), notes)


def paper_mechanism(run: Run) -> tuple[str, list[str]]:
    """Return the recipe of the paper's mechanism and its settings. BERT starts from the first four layers of MiniLM."""
    settings = [f"search.trials={run.trials_of('mechanism')}", f"training.workers={_workers()}"]
    if run.model == "bert":
        # With few epochs the recipes' batches of 64 at 2e-4 do not converge: SER 8.3 on ATIS, 3.4 with these.
        settings += ["training.batch_size=32", "training.learning_rate=5e-4", "training.learning_rate_decay=linear"]
        halves = f"training.memory_batch={16 // _workers()}"  # of a worker's share: utterances of like length together
        settings += ["model.pretrained=minilm", "model.layers=4", halves]
    points: list[dict[str, Any]] | None = _BERT_POINTS if run.model == "bert" else None
    if run.row in _EPOCHS_AND_NOISE:
        settings.append("space.training.epochs={int: [4, 48]}")
        both = _EPOCHS_AND_NOISE[run.row]
        points = [{"C": 1.0, "z0": z0, "decay": "none", "training.epochs": epochs} for epochs, z0 in both]
    if points is not None:
        settings.append(f"search.points_to_evaluate={json.dumps(points)}")
    if not run.generated:
        if run.model == "bert":
            settings.append(f"training.epochs={_BERT_EPOCHS[run.corpus]}")
        return f"{run.corpus}_{run.model}", settings
    public, other = ({"name": name, "utterances": min(run.utterances, 100_000)} for name in _SISTERS[run.corpus])
    settings += [
        f"corpus={{name: {run.corpus}, utterances: {run.utterances}}}",
        f"shadow.corpus={other}",
        f"edp.delta={delta_of(run.row)!r}",
        "resources.gpus_per_worker=auto",
    ]
    if run.utterances < _FULL_SIZE or run.model == "bert":
        settings.append(f"training.epochs={_GENERATED_EPOCHS}")
    if run.model == "bert":
        return "atis_bert", [*settings, f"model.vocabulary={public}"]
    settings.append(f"model.embeddings.corpus={public}")
    if run.utterances < _FULL_SIZE:
        settings.append("training.batch_size=64")
    return f"{run.corpus}_clc", settings


def private_recipe(run: Run, epsilon: float, *, schema: bool = False) -> tuple[str, list[str]]:
    """Return the private recipe and its settings. It is searched on a public corpus, so that ε covers the choice.

    Args:
        schema: whether heads begin at public heads of the samples of the corpus' schema, and the proxy's at its own.
    """
    settings = [
        f"search.trials={run.trials_of('private')}",
        f"edp.epsilon={epsilon:g}",
        f"model.pretrained={run.encoder}",
        f"model.name_prior={_NAME_PRIOR if (Path(run.encoder).expanduser() / NAMES).is_file() else 0}",
        f"model.schema_weight={_SCHEMA_WEIGHT if schema else 0}",
        f"model.slot_prior={_SLOT_PRIOR if schema else 0}",
    ]
    names = settings[-3] != "model.name_prior=0"
    if names:  # they are of the last layer
        settings.append('space.model.features.layers.choice=["2+6", "2+4+6"]')
    # Each step has the same noise, so equal weights of the steps are best, above all where heads begin at a prior.
    if epsilon <= 1 or ((names or schema) and epsilon <= 3):
        low, high = (50, 200) if epsilon <= 1 else (100, 300)
        settings += ["training.optimizer=sgd", "training.average=0.7", "training.epochs=80", "edp.C=0.25"]
        settings += ["space.training.epochs=null", "space.C=null", f"training.learning_rate={2 * low}"]
        settings += [f"space.training.learning_rate.log_uniform=[{low}, {high}]"]
    if not run.generated:
        return f"{run.corpus}_private", settings
    # No corpus can be both: what the attacker is shown, and what stands in the private one's place.
    shown, proxy = _SISTERS[run.corpus]
    settings += [
        f"corpus.utterances={run.utterances}",
        f"training.workers={_workers()}",
        f"model.features.public=[{{name: {shown}, utterances: 4000}}]",
        f"search.proxy={{name: {proxy}, utterances: {run.utterances}}}",
        "resources.gpus_per_worker=auto",
    ]
    if run.utterances < _FULL_SIZE:  # as `quickstart`: a few hundred steps of batches that fit
        batch = min(1600, max(8, run.utterances // 25 // 8 * 8))
        small = ["training.epochs=32", f"training.batch_size={batch}", "space.training.batch_size=null"]
        small += ["training.learning_rate=120", "space.training.learning_rate.log_uniform=[30, 240]"]
        settings += [*small, f"edp.delta={delta_of(run.row)!r}", "training.validate_every=8"]
    return f"{run.corpus}_private", settings


def _paper_mechanism(run: Run, progress: Progress) -> tuple[list[Entry], list[Note]]:
    """Measure SGD and the front; LiRA attacks its most useful point with the references of SGD."""
    recipe, settings = paper_mechanism(run)
    name = f"table1-{run.model}_{run.corpus_name}"
    progress.say(f"{', '.join(names_of(run.row))}: SGD and the paper's mechanism")
    sweep = searched(Sweep(run.storage, name), recipe, settings, run.tracking_uri, progress)
    baseline = sweep.record.baseline
    assert baseline is not None  # of a sweep that has ended
    front = pareto_front(sweep.trials(), sweep.recipe.search.objectives)
    entries = [_entry(run, "sgd", [baseline]), *(_entry(run, "edp_front", [point.metrics]) for point in front)]
    notes = [_note(run, "sgd", [baseline], f"{name}/baseline", "sgd", progress)]
    if front:
        best = min(front, key=lambda point: point.metrics["ser"])
        notes.append(
            _note(run, "edp_front", [best.metrics], f"{name}/{best.name}", "sgd", progress, chosen=best.params)
        )
    return entries, notes


def _private(run: Run, progress: Progress, *, epsilon: int, schema: bool = False) -> tuple[list[Entry], list[Note]]:
    """Train the private recipe's choice at an ε with each seed."""
    recipe, settings = private_recipe(run, epsilon, schema=schema)
    kind = "schema" if schema else "private"
    point, name = f"{kind}_{epsilon}", f"table1-{run.corpus_name}-{kind}-{epsilon}"
    progress.say(f"{names_of(run.row)[0]}: the private recipe at ε = {epsilon}{', with a schema' if schema else ''}")
    where: dict[str, Any] = {"tracking_uri": run.tracking_uri, "progress": progress}
    found = run_proxy(recipe, settings, name=name, storage=run.storage, **where)
    sweep, spec = Sweep(run.storage, found["sweep"]), load_config(Path(found["output"]) / "config.yaml", [])
    trained = [found]
    for seed in range(1, run.seeds):
        training = spec.training.model_copy(update={"seed": spec.training.seed + seed})
        again = spec.model_copy(update={"training": training})
        trained.append(release(again, sweep, f"{name}-seed-{seed}", **where))
    metrics = [one["metrics"] for one in trained]
    chosen = {key: value for key, value in found["chosen"]["params"].items() if key != "z0"}
    return [_entry(run, point, metrics)], [_note(run, point, metrics, found["output"], "own", progress, chosen=chosen)]


def _note(
    run: Run,
    point: str,
    metrics: list[dict[str, Any]],
    target: str,
    references: Kind,
    progress: Progress,
    *,
    chosen: dict[str, Any] | None = None,
) -> Note:
    sers, aucs = ([one[name] for one in metrics] for name in ("ser", "mia_auc"))
    return Note(point, sers, aucs, _lira(run, target, references, progress), chosen, references)


def _entry(run: Run, point: str, metrics: list[dict[str, Any]]) -> Entry:
    """Return the mean over seeds."""
    corpus, model = names_of(run.row)
    private = point != "sgd"
    return Entry(
        corpus=corpus,
        model=model,
        point=point,
        ser=fmean(one["ser"] for one in metrics),
        mia_auc=fmean(one["mia_auc"] for one in metrics),
        epsilon=max(one["epsilon"] for one in metrics) if private else None,
        delta=metrics[0]["delta"] if private else None,
        epsilon_paper=max(one["epsilon_paper"] for one in metrics) if private else None,
        seconds=round(fmean(one["trial_seconds"] for one in metrics), 1),
        seeds=len(metrics),
        command=run.command,
    )


def _lira(run: Run, target: str, kind: Kind, progress: Progress) -> float:
    """Return LiRA's TPR at 1 % FPR, the higher of its two forms.

    One compares with models that were trained on the utterance and models that were not, the other with these alone.
    Which is stronger depends on how like the target the references are.
    """
    found = find_target(target, run.storage, run.tracking_uri)
    document = read_json_if_any(found.folder / "attacks.json", dict[str, Any])
    if document is None or (document["references"], document["reference_training"]) != (_REFERENCES, kind):
        document = attack(found, _REFERENCES, kind, progress.console)
    tprs: list[float] = [one["tpr_at_1pct_fpr"] for one in document["attacks"] if one["name"].startswith("lira_")]
    return max(tprs)


def _workers() -> int:
    """Return the number of processes that share the paper's eight micro-batches: one a GPU, else one a core."""
    count = torch.cuda.device_count() or os.cpu_count() or 1
    return max(n for n in (1, 2, 4, 8) if n <= count)
