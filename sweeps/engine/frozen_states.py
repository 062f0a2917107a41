"""States of a frozen encoder for all corpora of a sweep, computed once: on a GPU, or all CPUs of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import ray

from trainables.config import BERTSpec, ModelSpec
from trainables.features.compute_states import all_state_names, in_turn, missing_states, write_states
from trainables.features.device import frozen_device
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.states import has_name_scores
from trainables.features.word_pieces import WordPieces

Say = Callable[[str], None]


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
