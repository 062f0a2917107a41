"""Trainings as they are recorded: each has a line in the storage folder's journal before it begins, and one at its end.

A corpus with a budget (`corpus.budget`) admits no training that would make its account pass it. The account is read
and the line is written under one lock, so that sweeps that run at the same time share the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.spending import Spending, of_training, together
from sweeps.config.target_epsilon import planned
from sweeps.engine.watch import notice
from sweeps.results.account import account_of
from sweeps.store.journal import (
    Begin,
    Corpus,
    End,
    Journal,
    Line,
    Older,
    Release,
    What,
    corpus_of,
    now,
    public_digests,
    read_journal,
    write,
)
from sweeps.text.figures import epsilon_digits
from trainables.config import TrialSpec
from trainables.records.epochs import LEDGER, begin_folder, read_ledger
from trainables.records.journal import JOURNAL, locked, new_id, read_id, write_id

_ROUNDING = 1e-9
"""Relative excess that is no reason to refuse: noise for a target is solved for to about this precision."""


class Recorder:
    """Records the trainings of one sweep, or one training of its own.

    Args:
        folder: of the sweep, or of the training.
        spec: the baseline of the sweep, or the training.
        say: called with a line if a budget's account is only a lower bound.
        parents: names of the sweeps that the configuration, or the first points of the search, come from.
        alone: True for a training of its own.
    """

    def __init__(
        self,
        folder: Path,
        spec: TrialSpec,
        say: Callable[[str], None],
        *,
        parents: Iterable[str] = (),
        alone: bool = False,
    ) -> None:
        self._folder, self._storage, self._spec, self._say = folder, folder.parent, spec, say
        self._names, self._alone, self._budget = tuple(parents), alone, spec.corpus.budget
        self._corpus: Corpus | None = None
        self._compared: set[str] = set()
        self._said: set[str] = set()
        # Set by the first `begin`.
        self._group = ""
        self._parents: tuple[str, ...] = ()
        self._public: dict[str, str] = {}

    def check(self, more: Sequence[Spending], what: str, going_on: Mapping[Path, TrialSpec] | None = None) -> None:
        """Raise if the corpus' account would pass its budget with `more`.

        Args:
            what: whose cost that is, in words.
            going_on: configurations, by folder, of trainings that may have begun, and whose plans are among `more`.

        Raises:
            UserError: with the account so far, the cost of `more`, and the budget.
        """
        if self._budget is None:
            return
        with notice("reading the corpus' account", self._say):
            journal = read_journal(self._storage)
            corpus = corpus_of(self._spec.corpus, journal.corpora, self._storage)
            why = self._refusal(journal, corpus, more, what, going_on or {})
        if why is not None:
            raise UserError(why)

    def begin(
        self, what: What, spec: TrialSpec, *, units: int = 0, folder: Path | None = None, part: str = ""
    ) -> str | None:
        """Record a training that is about to begin; return why the corpus' budget forbids it, if it does.

        A training that goes on in its folder, with its ledger, keeps its id.

        Args:
            units: training utterances of the corpus, or users if they are the unit; 0 without privacy.
            folder: the training's own, which is made; None for trainings without privacy that are known by `part`.
            part: the training's name in its sweep.
        """
        plan = Ledger(private=False) if spec.training.method == "sgd" else planned(spec, units)
        first = not self._public
        if first:
            self._describe(read_journal(self._storage), new_key=True)  # before the lock: it may read all corpora
        with locked(self._storage) as handle:
            lines: list[Line] = []
            if first or self._budget is not None:
                journal = read_journal(self._storage)
                corpus = self._describe(journal)
                if plan.private and self._budget is not None:
                    cost, own_folder = [of_training(spec, units)], {folder: spec} if folder is not None else {}
                    why = self._refusal(journal, corpus, cost, part or "this training", own_folder)
                    if why is not None:
                        return why
                lines = [corpus] if corpus.id not in journal.corpora else []
                if first:
                    lines += [Older(folders=tuple(sorted(journal.older)))] if journal.older else []
                    self._join(journal)
            assert self._corpus is not None, "described above"
            own = f"{self._group}-{what}" if what == "baseline" else _id_for(folder)
            if plan.private:
                plan = plan.model_copy(update={"most_of_a_user": self._corpus.most_of_a_user})
            begin = Begin(
                id=own,
                at=now(),
                what=what,
                name=self._folder.name,
                part=part,
                group=own if self._alone else self._group,
                parents=self._parents,
                corpus=self._corpus.id,
                public=self._public,
                unit=spec.edp.unit,
                delta=spec.edp.delta,
                ledger=plan,
            )
            write(self._storage, handle, [*lines, begin])
        return None

    def end(self, folder: Path, ledger: Ledger | None, model: str | None = None) -> None:
        """Record the end of a training. If its ledger is unknown (None) or its folder gone, it counts as planned.

        Args:
            model: why its model counts as released, in words; None if it does not.
        """
        if (own := read_id(folder)) is None:
            return
        ended: list[Line] = [End(id=own, at=now(), ledger=ledger)] if ledger is not None else []
        released: list[Line] = [Release(id=own, at=now(), model=model)] if model is not None else []
        with locked(self._storage) as handle:
            write(self._storage, handle, ended + released)

    def _describe(self, journal: Journal, new_key: bool = False) -> Corpus:
        """Return the corpus' line, compared with all corpora of the journal."""
        if self._corpus is None or not journal.corpora.keys() <= self._compared:
            self._corpus = corpus_of(self._spec.corpus, journal.corpora, self._storage, new_key)
            self._compared = set(journal.corpora)
        return self._corpus

    def _join(self, journal: Journal) -> None:
        """Find the ids of the sweep and of its parents. A name may be that of several sweeps, which all count."""
        if not self._alone:
            self._group = read_id(self._folder) or new_id()
            write_id(self._folder, self._group)
        begun = [one.begin for one in journal.trainings.values()]
        found = [one.group for one in begun if one.name in self._names and one.what != "train"]
        found += filter(None, (read_id(self._storage / name) for name in self._names))
        self._parents = tuple(dict.fromkeys(found))
        self._public = public_digests(self._spec)

    def _refusal(
        self, journal: Journal, corpus: Corpus, more: Sequence[Spending], what: str, going_on: Mapping[Path, TrialSpec]
    ) -> str | None:
        """Return the message of `check`; None if the budget allows `more`."""
        assert self._budget is not None, "the callers ask only then"
        most = f"corpus.budget = (ε {self._budget.epsilon:g}, δ {self._budget.delta:g})"
        name = self._spec.corpus.name
        if journal.lost:
            return (
                f"{most}: the account of corpus {name} is not known, because {journal.lost[0]}; "
                f"allowed: {JOURNAL} from a backup, or no budget"
            )
        for folder, spec in going_on.items():
            if (training := journal.trainings.get(read_id(folder) or "")) is not None:
                training.ledger = _beside_plan(training.ledger, folder, spec)
        account = account_of(journal, corpus)
        for line in account.uncounted:
            if line not in self._said:
                self._say(f"corpus.budget: the account of {name} is a lower bound: {line}")
                self._said.add(line)
        after = account.everything(self._budget.delta, more)
        if after <= self._budget.epsilon * (1 + _ROUNDING):
            return None
        every = (account.everything(self._budget.delta), together(more, self._budget.delta), after)
        shown = ["∞" if math.isinf(one) else epsilon_digits(one / (1 + _ROUNDING), 4) for one in every]
        return (
            f"{most}: the account of corpus {name} is ε = {shown[0]}, {what} would add {shown[1]} and make it "
            f"{shown[2]}; allowed: what stays within the budget (edp-sweep account lists what was spent)"
        )


def _id_for(folder: Path | None) -> str:
    """Return the id of the training in a folder, which is made; a new id if it does not go on, or has no folder."""
    if folder is None:
        return new_id()
    own = read_id(folder) if (folder / LEDGER).is_file() else None
    begin_folder(folder)
    if own is None:
        write_id(folder, own := new_id())
    return own


def _beside_plan(known: Ledger, folder: Path, spec: TrialSpec) -> Ledger:
    """Return what a training that goes on costs beside its plan: the steps that its checkpoint lacks, run or begun."""
    from trainables.training.checkpoint import load_checkpoint, restored_ledger  # imports PyTorch

    going_on = restored_ledger(load_checkpoint(folder, spec), read_ledger(folder) or known)
    return going_on.model_copy(update={"entries": (), "not_executed": (), "alpha_release": None})
