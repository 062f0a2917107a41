"""`edp-sweep account`: the ε of everything that was ever trained on a corpus."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from edp.spec import UserError
from sweeps.commands.console import busy, err, out, print_json
from sweeps.commands.options import RUNS, Json, Storage
from sweeps.results.account import UNKNOWN, CorpusAccount, Row, accounts, not_counted
from sweeps.store.journal import read_journal
from sweeps.text.errors import one_line
from sweeps.text.figures import UNITS, enumerated, epsilon_cell, epsilon_digits
from sweeps.text.paths import as_path
from sweeps.text.terminal import figures_table, fitting, print_line
from trainables.config import CorpusSpec
from trainables.corpora import GENERATED, PUBLIC


def account_command(
    corpus: Annotated[
        str | None,
        typer.Argument(help="a corpus' name in the recipes, or the path of its files; by default every corpus"),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="δ of every ε; by default the smallest δ of the recipes that trained on the corpus"),
    ] = None,
    storage: Storage = RUNS,
    as_json: Json = False,
) -> None:
    """Show the ε of everything that was ever trained on a corpus.

    One total is of what was released, another also of what was only looked at.
    """
    if delta is not None and not 0 < delta < 1:
        raise UserError(f"--delta = {delta:g}: allowed: a number between 0 and 1")
    if not storage.is_dir():
        raise UserError(f"storage = {str(storage)!r}: no such folder; allowed: the folder of sweeps")
    with busy("reading the journal, and composing"):
        found = accounts(storage) if corpus is None else _of_corpus(corpus, storage)
        documents = [account_document(one, delta or one.delta) for one in found]
        lost = [] if documents else not_counted(read_journal(storage))
    if as_json:
        print_json({"storage": str(storage), "corpora": documents, "lost": lost, "unknown": UNKNOWN})
        return
    for document in documents:
        print_account(document, out)
    for line in lost:
        print_line(err, f"the account of {storage} is unknown: {line}")
    if documents:
        print_line(out, UNKNOWN)
    elif not lost:
        print_line(err, f"nothing was trained in {storage}")


def _of_corpus(corpus: str, storage: Path) -> list[CorpusAccount]:
    """Return the accounts of the corpora that have a name in the recipes, or of the corpus at a path.

    Raises:
        UserError: if there is no such corpus.
    """
    try:
        here = as_path(corpus).exists()
        spec = CorpusSpec.model_validate({"path": corpus} if here else {"name": corpus})
    except (UserError, ValidationError) as error:
        raise UserError(f"corpus = {one_line(error) if isinstance(error, ValidationError) else error}") from None
    if here or corpus in (*PUBLIC, *GENERATED):
        return accounts(storage, spec)
    every = accounts(storage)
    if not (named := [one for one in every if corpus in one.names]):
        names = sorted({name for one in every for name in one.names})
        raise UserError(
            f"corpus = {corpus!r}: nothing in {storage} was trained on a corpus of this name, and there is no such "
            f"file or folder; allowed: {', '.join(names) or 'a path'}"
        )
    return named


def account_document(account: CorpusAccount, delta: float) -> dict[str, Any]:
    """Return a corpus' part of the document that `edp-sweep account --json` prints."""
    return {
        "corpus": account.names,
        "delta": delta,
        "unit": account.unit,
        "activities": [_row_document(row, delta) for row in account.rows],
        "without_privacy": account.without_privacy,
        "released_without_privacy": account.released_without_privacy,
        "uncounted": account.uncounted,
        "unnamed": account.unnamed,
        "epsilon_released": _total(account, account.released(delta)),
        "epsilon_user_released": _total(account, account.released_user(delta)),
        "epsilon_of_everything": _total(account, account.everything(delta)),
        "epsilon_user_of_everything": _total(account, account.everything_user(delta)),
    }


def _total(account: CorpusAccount, epsilon: float | None) -> float | None:
    """Return a total; None in place of a 0 that leaves something out."""
    return None if epsilon == 0 and account.uncounted else epsilon


def _row_document(row: Row, delta: float) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "name": row.name,
        "began": datetime.fromisoformat(row.began).astimezone().isoformat(timespec="seconds"),
        "corpus": row.corpus.spec.name,
        "same_utterances": row.own,
        "trainings": len(row.private),
        "epsilon": row.epsilon(delta),
        "released": row.released,
        "models": row.models,
    }


def print_account(document: dict[str, Any], console: Console) -> None:
    """Print a corpus' activities as a table, the two totals, what has no ε, and what is not counted."""
    heads = ["what", "name", "began", "corpus", "trainings", "ε"]
    narrow = [[head for head in heads if head not in left_out] for left_out in ((), ("corpus",), ("corpus", "began"))]
    console.print(fitting(console, (_table(document, some) for some in narrow)))
    least = "at least " if document["uncounted"] else ""
    totals = {
        "what was released, and of the trainings that chose it": "released",
        "everything, also of what was only looked at": "of_everything",
    }
    for what, key in totals.items():
        shown = [document[f"epsilon_{key}"]]
        if document["unit"] != "user" and (user := document[f"epsilon_user_{key}"]) is not None:
            shown.append(user)
        texts = [
            "unknown" if one is None else "∞" if math.isinf(one) else f"{least}{epsilon_digits(one, 4)}"
            for one in shown
        ]
        print_line(console, f"ε of {what}: {'; of a user: '.join(texts)}")
    of_users = document["unit"] == "user" or document["epsilon_user_of_everything"] is not None
    lists = {
        "released without privacy:": document["released_without_privacy"],
        "without privacy (ε = ∞), and in no total unless released; do not release these:": document["without_privacy"],
        "not counted, so the totals are lower bounds:": document["uncounted"],
        "of a user who is in one of these too, the ε is larger (users are not named, or by another key):": (
            document["unnamed"] if of_users else []
        ),
    }
    for heading, lines in lists.items():
        for line in [heading, *(f"  {line}" for line in lines)] if lines else []:
            print_line(console, line)


def _table(document: dict[str, Any], heads: list[str]) -> Table:
    """Return a table with a row for each activity, and the columns `heads` beside what was released."""
    names = document["corpus"]
    title = f"Account of corpus {names[0]}" + (f", also called {enumerated(names[1:])}" if names[1:] else "")
    caption = f"ε at δ = {document['delta']:g}, for {UNITS[document['unit']]}."
    table = figures_table(title, caption, heads, "released")
    for column in table.columns[:-3]:
        column.justify = "left"
    for one in document["activities"]:
        cells = {
            "what": one["kind"],
            "name": one["name"],
            "began": f"{datetime.fromisoformat(one['began']):%Y-%m-%d %H:%M}",
            "corpus": one["corpus"],
            "trainings": str(one["trainings"]),
            "ε": epsilon_cell(one["epsilon"]),
        }
        released = "; ".join(one["models"]) or ("chose what was released" if one["released"] else "")
        table.add_row(*(cells[head] for head in heads), released)
    return table
