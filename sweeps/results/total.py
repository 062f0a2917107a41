"""ε of all that was run on a sweep's private corpus: its trials, `confirm`'s trainings, and the final models."""

from __future__ import annotations

from pathlib import Path

from edp.accounting.selection import composed_epsilon, composed_epsilon_user
from edp.ledger import Ledger
from sweeps.formatting.figures import enumerated, epsilon_text
from sweeps.recipes.pricing import epsilon_of_best
from sweeps.results.confirmed import CONFIRM
from sweeps.state.picks import final_trainings
from sweeps.state.records import TrialRecord, executed
from sweeps.state.sweep import Sweep
from trainables.records.epochs import read_curve


def epsilon_of_sweep(sweep: Sweep, trials: list[TrialRecord]) -> float | None:
    """ε of having looked at all of it: what each training executed, composed in full. The baseline is not in it.

    Where a secret number of trials was run and only the best released, the bound for that, and what final trainings
    add: ε adds up then, and so does δ (`cost_line` says so). None where what some training executed is not known: ε is
    then no smaller than that of the others, and nobody can say how much larger.
    """
    known = _known(sweep, trials)
    if known is None:
        return None
    recipe = sweep.recipe
    composed = composed_epsilon(known, recipe.edp.delta) if known else 0.0
    return composed + (epsilon_of_best(recipe) if recipe.search.secret else 0.0)


def epsilon_user_of_sweep(sweep: Sweep, trials: list[TrialRecord]) -> float | None:
    """The same for one user; None also where users are not known."""
    recipe = sweep.recipe
    if recipe.search.secret:
        return epsilon_of_sweep(sweep, trials) if recipe.edp.unit == "user" else None
    known = _known(sweep, trials)
    return composed_epsilon_user(known, recipe.edp.delta) if known is not None else None


def unknown_ledgers(sweep: Sweep, trials: list[TrialRecord]) -> str:
    """The trainings whose ledger is missing or broken, in words; "" where there is none."""
    lost = [str(trial.folder) for trial in _counted(sweep, trials) if trial.ledger is None]
    which = [f"trial{'s' if len(lost) > 1 else ''} {enumerated(lost)}"] if lost else []
    which += [str(place.relative_to(sweep.folder.parent)) for place, ledger in _later(sweep).items() if ledger is None]
    return f"the ledger of {enumerated(which)} is missing, broken or not whole" if which else ""


def cost_line(sweep: Sweep, trials: list[TrialRecord]) -> str:
    """The ε of the sweep, and what stands behind it."""
    epsilon = epsilon_of_sweep(sweep, trials)
    known = epsilon_text(epsilon) if epsilon is not None else f"unknown: {unknown_ledgers(sweep, trials)}"
    user = epsilon_user_of_sweep(sweep, trials)
    of_user = f"; of a user: {epsilon_text(user)}" if user is not None and trials else ""
    return f"ε of the whole sweep ({what_counts(sweep)}): {known}{of_user}"


def what_counts(sweep: Sweep) -> str:
    """What the sweep's ε is composed of, in words."""
    confirmed, final = len(_confirmed(sweep)), len(final_trainings(sweep))
    later = [f"{confirmed} trainings of confirm"] if confirmed else []
    later += [f"{final} final training{'s' if final > 1 else ''}"] if final else []
    if sweep.recipe.search.secret:
        also = f"; {enumerated(later)} beside it, for which δ adds up too" if later else ""
        return f"a secret number of trials, only the best released{also}"
    return f"{enumerated(['all trials', *later])} composed"


def _known(sweep: Sweep, trials: list[TrialRecord]) -> list[Ledger] | None:
    """The ledgers that are composed; None where one of them is not known."""
    every = [*(trial.ledger for trial in _counted(sweep, trials)), *_later(sweep).values()]
    found = [ledger for ledger in every if ledger is not None]
    return found if len(found) == len(every) else None


def _counted(sweep: Sweep, trials: list[TrialRecord]) -> list[TrialRecord]:
    """Those whose ledgers count: where their number is secret, a bound on the best of them takes their place."""
    return [] if sweep.recipe.search.secret else trials


def _later(sweep: Sweep) -> dict[Path, Ledger | None]:
    """What was executed after the search, by folder."""
    folders = [*_confirmed(sweep), *final_trainings(sweep)]
    return {folder: executed(folder, read_curve(folder)) for folder in folders}


def _confirmed(sweep: Sweep) -> list[Path]:
    return sorted((sweep.folder / CONFIRM).glob("*/seed-*/"))
