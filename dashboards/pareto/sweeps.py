"""Another sweep of the same storage, to compare with this one."""

from __future__ import annotations

import functools
from pathlib import Path

from dash import html

from dashboards.pareto.data import METRICS, Candidate, Snapshot, text
from dashboards.pareto.source import Source
from edp.spec import UserError
from sweeps.store.sweep import Sweep, all_sweeps
from sweeps.text.figures import epsilon_text
from sweeps.text.guarantee import WORTH

_SER = next(axis for axis in METRICS if axis.key == "ser")


def others(source: Source) -> list[str]:
    """Return the names of the storage's other sweeps."""
    return [sweep.name for sweep in all_sweeps(source.sweep.folder.parent) if sweep.name != source.sweep.name]


@functools.lru_cache(maxsize=4)
def _source(storage: Path, name: str) -> Source:
    return Source(Sweep.existing(storage, name))


def beside(source: Source, name: str | None) -> Snapshot | None:
    """Return the snapshot of the sweep `name`; None if it cannot be read."""
    if name not in others(source):
        return None
    try:
        return _source(source.sweep.folder.parent, name).read()[1]
    except UserError:
        return None


def two_sweeps(one: Snapshot, other: Snapshot) -> html.Div:
    """Return a table that compares two sweeps: what they searched, their lowest SER by ε, and their recommendations."""
    rows = [("corpus", *(s.recipe.corpus.name for s in (one, other)))]
    rows += [("model", *(s.recipe.model.kind.upper() for s in (one, other)))]
    rows += [("trials", *(", ".join(f"{n} {state}" for state, n in s.counts.items()) for s in (one, other)))]
    for most, _ in WORTH[:-1]:
        rows += [(f"lowest SER at ε ≤ {most:g}", *(_lowest(s, most) for s in (one, other)))]
    rows += [("recommended", *(_advised(s) for s in (one, other)))]
    rows += [("ε of the whole sweep", *(epsilon_text(s.epsilon_of_sweep) for s in (one, other)))]
    table = html.Table(
        [
            html.Thead(html.Tr([html.Th(head, scope="col") for head in ("", one.record.name, other.record.name)])),
            html.Tbody([html.Tr([html.Th(head, scope="row"), *map(html.Td, cells)]) for head, *cells in rows]),
        ],
        className="figures",
    )
    same = one.recipe.corpus == other.recipe.corpus
    warning = "" if same else "They have different corpora: figures of one say little about the other."
    return html.Div([table, html.P(warning, className="note")])


def _lowest(snapshot: Snapshot, most: float) -> str:
    found = [c for c in snapshot.candidates.values() if c.metrics["epsilon"] <= most * (1 + 1e-6)]
    return _figure(min(found, key=lambda c: c.metrics["ser"])) if found else "none"


def _advised(snapshot: Snapshot) -> str:
    point = snapshot.advice().point
    return (
        "nothing"
        if point is None
        else f"{_figure(snapshot.candidates[point.name])}, ε {epsilon_text(point.metrics['epsilon'])}"
    )


def _figure(candidate: Candidate) -> str:
    interval = candidate.interval("ser")
    spread = f" ({text(_SER, interval[0])} – {text(_SER, interval[1])})" if interval else ""
    return f"{candidate.key}: {text(_SER, candidate.metrics['ser'])}{spread}"
