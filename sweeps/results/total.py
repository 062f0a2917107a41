"""The ε of everything that ran on a sweep's private corpus: trials, `confirm`'s trainings, final models."""

from __future__ import annotations

from pathlib import Path

from edp.accounting.selection import composed_epsilon, composed_epsilon_user
from edp.ledger import Ledger
from sweeps.config.pricing import epsilon_of_best
from sweeps.results.confirmed import CONFIRM
from sweeps.store.picks import final_trainings
from sweeps.store.records import TrialRecord, executed
from sweeps.store.sweep import Sweep
from sweeps.text.figures import enumerated, epsilon_text
from trainables.records.epochs import read_curve


def epsilon_of_sweep(sweep: Sweep, trials: list[TrialRecord]) -> float | None:
    """Return the ε of seeing all trainings: what each one executed, composed in full. The baseline is not included.

    After a secret number of trials, where only the best is released, return the bound for that plus what final
    trainings add: both ε and δ add up then (`cost_line` says so). Return None if the steps of some training are
    unknown: ε is then at least that of the others, without an upper bound.
    """
    known = _known(sweep, trials)
    if known is None:
        return None
    recipe = sweep.recipe
    composed = composed_epsilon(known, recipe.edp.delta) if known else 0.0
    return composed + (epsilon_of_best(recipe) if recipe.search.secret else 0.0)


def epsilon_user_of_sweep(sweep: Sweep, trials: list[TrialRecord]) -> float | None:
    """Return the same for one user; None also where users are unknown."""
    recipe = sweep.recipe
    if recipe.search.secret:
        return epsilon_of_sweep(sweep, trials) if recipe.edp.unit == "user" else None
    known = _known(sweep, trials)
    return composed_epsilon_user(known, recipe.edp.delta) if known is not None else None


def unknown_ledgers(sweep: Sweep, trials: list[TrialRecord]) -> str:
    """Return the trainings whose ledger is missing or broken, in words; "" without any."""
    lost = [str(trial.folder) for trial in _counted(sweep, trials) if trial.ledger is None]
    which = [f"trial{'s' if len(lost) > 1 else ''} {enumerated(lost)}"] if lost else []
    which += [str(place.relative_to(sweep.folder.parent)) for place, ledger in _later(sweep).items() if ledger is None]
    return f"the ledger of {enumerated(which)} is missing, broken or not whole" if which else ""


def cost_line(sweep: Sweep, trials: list[TrialRecord]) -> str:
    """Return the ε of the sweep in one line, with what it is composed of."""
    epsilon = epsilon_of_sweep(sweep, trials)
    known = epsilon_text(epsilon) if epsilon is not None else f"unknown: {unknown_ledgers(sweep, trials)}"
    user = epsilon_user_of_sweep(sweep, trials)
    of_user = f"; of a user: {epsilon_text(user)}" if user is not None and trials else ""
    return f"ε of the whole sweep ({what_counts(sweep)}): {known}{of_user}"


def what_counts(sweep: Sweep) -> str:
    """Return what the sweep's ε is composed of, in words."""
    confirmed, final = len(_confirmed(sweep)), len(final_trainings(sweep))
    later = [f"{confirmed} trainings of confirm"] if confirmed else []
    later += [f"{final} final training{'s' if final > 1 else ''}"] if final else []
    if sweep.recipe.search.secret:
        also = f"; {enumerated(later)} beside it, for which δ adds up too" if later else ""
        return f"a secret number of trials, only the best released{also}"
    return f"{enumerated(['all trials', *later])} composed"


def _known(sweep: Sweep, trials: list[TrialRecord]) -> list[Ledger] | None:
    """Return the ledgers to compose; None if one of them is unknown."""
    every = [*(trial.ledger for trial in _counted(sweep, trials)), *_later(sweep).values()]
    found = [ledger for ledger in every if ledger is not None]
    return found if len(found) == len(every) else None


def _counted(sweep: Sweep, trials: list[TrialRecord]) -> list[TrialRecord]:
    """Return the trials whose ledgers count; none if their number is secret: a bound on the best replaces them."""
    return [] if sweep.recipe.search.secret else trials


def _later(sweep: Sweep) -> dict[Path, Ledger | None]:
    """Return the ledgers of trainings after the search, by folder."""
    folders = [*_confirmed(sweep), *final_trainings(sweep)]
    return {folder: executed(folder, read_curve(folder)) for folder in folders}


def _confirmed(sweep: Sweep) -> list[Path]:
    return sorted((sweep.folder / CONFIRM).glob("*/seed-*/"))
