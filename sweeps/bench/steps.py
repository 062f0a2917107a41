"""What every method of the benchmarks has: a next step, and the utterances that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

from edp.sampling import Indices, shuffled_epoch
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.spec import TrialSpec

Step = Callable[[], None]


class CannotRun(RuntimeError):
    """A method cannot run a model; the text is the reason."""


def batches(spec: TrialSpec, corpus: EncodedCorpus, rank: int, world: int) -> Iterator[Indices]:
    """Indices of this worker's share of each step, for the methods that are not ours: the utterances that ours take.

    Shuffled epochs without end; the last step of each, which may be short, is left out.
    """
    size, seed = corpus.size("train"), spec.training.seed
    batch_size = spec.training.batch_in(size)
    for epoch in count():
        sizes = {"batch_size": batch_size, "micro_batches": world, "workers": world}
        steps = shuffled_epoch(size, seed=seed, epoch=epoch, **sizes)
        yield from (step[rank][0] for step in islice(steps, size // batch_size))
