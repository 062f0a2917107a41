"""Files that all trials of a sweep share: encoded corpora and the fitted attack, made once and named by content."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import ray

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from sweeps.engine.nodes import check_nodes
from sweeps.engine.watch import notice
from sweeps.store.prepared import Prepared, is_encoded, locate, shadow_trial, task_of_corpus
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import check_corpora
from sweeps.tracking.tracker import Figures, Tracker
from trainables.config import BERTSpec, CorpusSpec, ModelSpec, TrialSpec
from trainables.config.keys import cache_key
from trainables.corpora import corpus_digest, is_generated, load_corpus
from trainables.corpora.labels import TASKS, for_task, labels_of
from trainables.corpora.load import check_private, is_made
from trainables.corpora.overlap import check_public, check_utterances
from trainables.corpora.schema import find_schema, public_text
from trainables.corpora.splits import near_copies, near_words
from trainables.corpora.types import UNKNOWN, Splits, Utterance
from trainables.features.compute_states import all_state_names, in_turn, missing_states, write_states
from trainables.features.device import frozen_device
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.states import has_name_scores, has_states
from trainables.features.word_pieces import WordPieces, readable
from trainables.measure.attacks.canary import make_canaries, plant, toss_coins
from trainables.measure.attacks.shadow import fit_attack
from trainables.records.files import reading, write_json
from trainables.records.job import TrialError, TrialJob, TrialResult, TrialStopped
from trainables.records.pareto import Metrics
from trainables.workers.client import OnEpoch

Say = Callable[[str], None]
RunJob = Callable[[TrialJob, OnEpoch], TrialResult]
ShowEpoch = Callable[[str, int, int, Metrics], None]


def check_encoders(trials: Iterable[TrialSpec]) -> None:
    """Raise if a trial's pretrained encoder has too few layers, or cannot be clipped as the trial asks.

    Raises:
        UserError: with the allowed values.
    """
    for spec in trials:
        if isinstance(spec.model, BERTSpec) and spec.model.pretrained is not None:
            from trainables.models.bert import check_encoder  # transformers takes seconds to import

            check_encoder(spec.model, spec)


def read_missing(spec: TrialSpec, prepared: Prepared) -> dict[Path, Splits]:
    """Read all of the corpora that are not encoded yet, so that a broken file is found before anything starts.

    Raises:
        UserError: if a file is broken, with file and line; if the private corpus is contained in one that counts as
            public; or if users are the unit and the corpus has none.
    """
    if prepared.coins is not None and is_encoded(prepared.corpus) and not prepared.coins.is_file():
        raise UserError(
            f"canaries: {prepared.coins} is missing, so it is unknown which canaries were trained on; "
            f"allowed: delete {prepared.corpus} too, to toss new coins"
        )
    wanted = {prepared.corpus: ("corpus", spec.corpus), prepared.shadow: ("shadow.corpus", spec.shadow.corpus)}
    found = {folder: load_corpus(corpus, field) for folder, (field, corpus) in wanted.items() if not is_encoded(folder)}
    # Opening finds a broken file of an encoded corpus before anything starts.
    there = {folder: EncodedCorpus.open(folder) for folder in wanted if folder not in found}
    new = found.get(prepared.corpus)
    spec.check_users(len(new.train_users) or None if new else there[prepared.corpus].own_users)
    if prepared.corpus in found:
        check_utterances(spec.model, spec.corpus, found[prepared.corpus])
    if not _searched(spec, prepared).is_file():  # also missing if other corpora count as public than before
        check_public(spec.corpus, new or load_corpus(spec.corpus), spec.public_corpora)
    if prepared.shadow in found:
        task = task_of_corpus(spec.corpus, prepared.corpus)
        found[prepared.shadow] = for_task(found[prepared.shadow], task, "shadow.corpus")
    if spec.canaries.count and prepared.corpus in found:
        found[prepared.corpus] = make_canaries(found[prepared.corpus], spec.canaries, spec.corpus.seed)
    return found


def private_sizes(recipe: Recipe, say: Callable[[str], None]) -> tuple[int, int]:
    """Return the numbers of private training utterances and of private users; check the proxy corpus if there is one.

    Raises:
        UserError: if the proxy corpus contains private utterances or has another task, or if users are unknown.
    """
    check_private(recipe.corpus)
    with notice("reading the corpus", say):
        splits = load_corpus(recipe.corpus, "corpus")
        if recipe.search.proxy is not None:
            check_public(recipe.corpus, splits, {"search.proxy": recipe.search.proxy})
            _check_task(recipe.search.proxy, splits)
    users = len(splits.train_users)
    recipe.baseline().check_users(users or None)
    return len(splits.train), users


def _check_task(proxy: CorpusSpec, splits: Splits) -> None:
    """Raise if the proxy corpus has another task than the corpus: the choice would not carry over."""
    task, other = labels_of(splits).task, labels_of(load_corpus(proxy, "search.proxy")).task
    if task != other:
        raise UserError(
            f"search.proxy = {proxy.name}: it has {TASKS[other]}, the corpus {TASKS[task]}; "
            f"allowed: a corpus of {TASKS[task]}"
        )


def open_corpora(spec: TrialSpec, cache: Path, folder: Path, say: Say) -> tuple[Prepared, dict[Path, Splits]]:
    """Return the paths of the shared files, and the corpora that are not encoded yet.

    Args:
        folder: the folder of the sweep or training, which must have begun on the same corpora.

    Raises:
        UserError: as `check_corpora`, `locate` and `read_missing`, and if the encoder cannot read most of the corpus.
    """
    check_corpora(folder, spec)
    prepared = locate(spec, cache)
    with notice("reading the corpora", say):
        found = read_missing(spec, prepared)
    if prepared.corpus in found:
        _say_contents(spec, found[prepared.corpus].utterances, say)
    return prepared, found


def _say_contents(spec: TrialSpec, utterances: list[Utterance], say: Say) -> None:
    """Say how many utterances are near copies, and how much of the corpus the encoder cannot read.

    Raises:
        UserError: if the encoder cannot read most of it.
    """
    if is_generated(spec.corpus):
        return
    if not is_made(spec.corpus) and (near := near_copies(utterances)):
        say(near_words(near, users=bool(utterances[0].user)))
    if isinstance(spec.model, BERTSpec):
        from trainables.features.pretrained import pretrained_pieces  # transformers takes seconds to import

        pieces = pretrained_pieces(spec.model.pretrained)
        if pieces is not None:
            counts = readable(utterances, pieces)
            counts.check()
            say(counts.line())


def num_privacy_units(spec: TrialSpec, prepared: Prepared, found: dict[Path, Splits], with_valid: bool = False) -> int:
    """Return the corpus' number of training utterances, or of users if they are the unit.

    Planted canaries do not count: their number is secret.

    Args:
        found: the corpora that `read_missing` has read.
        with_valid: True to count validation utterances too. Their users are not counted: a training costs at most as
            much with more users.
    """
    users, new = spec.edp.unit == "user", found.get(prepared.corpus)
    if new is not None:
        known = sum(one.intent != UNKNOWN for one in new.valid)  # others are left out of a training
        return len(new.train_users) if users else len(new.train) + known * with_valid
    there = EncodedCorpus.open(prepared.corpus)
    utterances = there.size("train") - there.planted + len(there.known("valid")) * with_valid
    return (there.own_users if users else None) or utterances


def encode_missing(
    spec: TrialSpec,
    prepared: Prepared,
    splits: dict[Path, Splits],
    say: Say,
    trials: Iterable[TrialSpec] = (),
) -> None:
    """Encode the corpora that `read_missing` returned, both with the same public features.

    Say how many labels few utterances carry, or the schema lacks: the terminal is that of the holder of the data.

    Args:
        say: shows the progress.
        trials: more trials on these corpora: the states of a frozen encoder are computed for each of them.

    Raises:
        UserError: if a node of the cluster does not see the storage folder or the encoder's.
    """
    for folder, corpus in splits.items():
        other = prepared.shadow if folder == prepared.corpus else prepared.corpus
        features = EncodedCorpus.open(other).features() if is_encoded(other) else None
        if features is None:
            say(f"making the {spec.model.kind.upper()} model's public word features")
        progress = progress_of(f"encoding {folder.name.rpartition('-')[0]}", say)
        if folder == prepared.corpus and prepared.coins is not None:
            corpus = plant(corpus, toss_coins(prepared.coins, spec.canaries.count))
        text = public_text(spec.corpus) if folder == prepared.corpus and has_states(spec.model) else []
        if (
            text
            and spec.corpus.schema is not None
            and (unread := find_schema(spec.corpus.schema, "corpus.schema").unread)
        ):
            say(f"not read of the schema: {', '.join(unread)}")
        encode(corpus, spec.model, folder, features=features, text=text, progress=progress)
    _searched(spec, prepared).touch()
    counts = EncodedCorpus.open(prepared.corpus).label_counts
    if counts.matter and not (is_generated(spec.corpus) and spec.corpus.schema is None):
        say(f"labels of {spec.corpus.name}: {counts.words()}")
    check_nodes(_read_by_workers(spec, prepared))
    ensure_states((prepared.corpus, prepared.shadow), (spec.model, *(trial.model for trial in trials)), say)


def _read_by_workers(spec: TrialSpec, prepared: Prepared) -> dict[str, Path]:
    """Return the folders that every node must see, by the setting that names them."""
    found = {"storage": prepared.corpus}
    if isinstance(spec.model, BERTSpec) and spec.model.pretrained is not None:
        folder = Path(spec.model.pretrained)
        found |= {"model.pretrained": folder.absolute()} if folder.is_dir() else {}
    return found


def _searched(spec: TrialSpec, prepared: Prepared) -> Path:
    """Return the path of an empty file that exists if `check_public` has passed for these corpora."""
    public = {corpus_digest(other, field) for field, other in spec.public_corpora.items()}
    return prepared.corpus.parent / f"searched-{cache_key(corpus_digest(spec.corpus), sorted(public))}"


def ensure_attack(spec: TrialSpec, prepared: Prepared, folder: Path, run_job: RunJob, show_epoch: ShowEpoch) -> None:
    """Train the shadow model and fit the attack to its predictions, unless the attack exists.

    Args:
        show_epoch: shows the training's name, its number of epochs, the epoch, and its metrics.

    Raises:
        TrialError: if the shadow model cannot be trained.
    """
    if prepared.attack.is_file():
        return
    shadow = shadow_trial(spec)
    with blamed_on("shadow model"):
        run_job(
            TrialJob(shadow, prepared.shadow, folder),
            functools.partial(show_epoch, "shadow model", shadow.training.epochs),
        )
    seen = folder / "attack_features.npz"
    with reading(seen), np.load(seen) as features:
        attack = fit_attack(features["members"], features["non_members"])
    write_json(prepared.attack, attack)


@contextmanager
def blamed_on(what: str) -> Iterator[None]:
    """Add to an error of the block which training without privacy failed, and which settings it has.

    Raises:
        TrialError: with `what`. `TrialStopped` is raised unchanged.
    """
    try:
        yield
    except TrialStopped:
        raise
    except TrialError as error:
        raise TrialError(f"{what}, which is trained without privacy by training.non_private: {error}") from error


def ensure_states(folders: Iterable[Path], models: Iterable[ModelSpec], say: Say) -> None:
    """Add the states that any of `models` reads to the encoded corpora in `folders`, which share features and task.

    Raises:
        UserError: if an encoder cannot be found, or lacks a layer.
    """
    chosen = [model for model in models if isinstance(model, BERTSpec) and model.features is not None]
    if not chosen:
        return
    folders = list(folders)
    _ensure_name_scores(folders, chosen)
    names = all_state_names(chosen, EncodedCorpus.open(folders[0]).labels)
    lacking = [folder for folder in folders if missing_states(folder, names)]
    if not lacking:
        return
    from trainables.features.compute_states import copy_moments, write_moments  # transformers takes seconds to import

    model, source = chosen[0], lacking[0]
    write_moments(source, model, names, progress_of("public states", say))
    for folder in folders:
        if folder != source:
            copy_moments(source, folder, names)
    # A GPU here outruns the CPUs of the tasks, and has made the public moments in its own type.
    on_cpus = frozen_device().type == "cpu"
    in_tasks = on_cpus and ray.is_initialized() and ray.cluster_resources().get("CPU", 1) >= 2
    for folder in lacking:
        progress = progress_of(f"states of {folder.name.rpartition('-')[0]}", say)
        write_states(folder, model, names, progress=progress, run=_tasks if in_tasks else in_turn)


def _ensure_name_scores(folders: list[Path], models: list[BERTSpec]) -> None:
    """Add the scores of labels' names to the folders, if a model begins with them.

    Raises:
        UserError: if the encoder has learnt none.
    """
    wanted = next((model for model in models if model.name_prior), None)
    if wanted is None or all(map(has_name_scores, folders)):
        return
    from trainables.features.compute_states import frozen_encoder
    from trainables.training.public_heads import learnt_names, name_scores

    learnt = learnt_names(wanted)
    for folder in folders:
        corpus = EncodedCorpus.open(folder)
        pieces = corpus.features()
        assert isinstance(pieces, WordPieces), "an encoder reads sub-words"
        name_scores(frozen_encoder(wanted), pieces, learnt, corpus.labels).save(folder)


def progress_of(what: str, say: Say) -> Callable[[int, int], None]:
    """Return a function that shows how many utterances are done."""
    return lambda done, total: say(f"{what}: {done:,} of {total:,} utterances")


def _tasks(work: Callable[[int], int], blocks: int) -> Iterable[int]:
    """Run blocks as tasks on the cluster; a single one here."""
    if blocks == 1:
        yield work(0)
        return

    @ray.remote(num_cpus=1, max_retries=3)
    def one(number: int) -> int:
        import torch

        torch.set_num_threads(1)
        return work(number)

    waiting = [one.remote(number) for number in range(blocks)]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)


def has_text(prepared: Prepared) -> bool:
    """Return True if the encoded private corpus comes with public text."""
    return EncodedCorpus.open(prepared.corpus).size("schema") > 0


def keep_schema_only(sweep: Sweep, spec: TrialSpec, prepared: Prepared, tracker: Tracker) -> None:
    """Measure the schema alone, and keep its figures in the sweep's record and its MLflow run."""
    metrics = measure_schema_only(spec, prepared)
    sweep.update(schema_only=metrics)
    tracker.log(sweep.record.run_id, Figures({f"schema_only_{name}": value for name, value in metrics.items()}))


def measure_schema_only(spec: TrialSpec, prepared: Prepared) -> Metrics:
    """Return the figures of heads at the public weights of `spec`, on the private corpus; ε is 0.

    Takes some seconds, in this process. The corpora of `prepared` are encoded, with text.
    """
    from trainables.measure.measuring import final_metrics, valid_metrics  # PyTorch takes seconds to import
    from trainables.training.process import alone, new_model, pick_device

    assert isinstance(spec.model, BERTSpec), "a corpus has text only for heads"
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"schema_weight": 1.0})})
    corpus = EncodedCorpus.open(prepared.corpus).for_model(spec.model)
    with tempfile.TemporaryDirectory() as scratch, alone():
        device = pick_device(spec.training)
        model = new_model(spec, corpus, device).eval()
        attack = prepared.attack if prepared.attack.is_file() else None
        job = TrialJob(spec, prepared.corpus, Path(scratch), attack)
        found = valid_metrics(model, corpus, job, device, None)
        found |= final_metrics(model, corpus, job, device, None) or {}
    return found | {"epsilon": 0.0, "epsilon_paper": 0.0, "delta": spec.edp.delta}
