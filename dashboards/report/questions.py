"""The questions of a privacy review, answered from the sweep's own record or marked open.

The questions follow Ponomareva et al., "How to DP-fy ML" (2023), section 5.3 (setting, definition, accounting,
verification) and NIST SP 800-226 (2025) (unit and trust, sensitivity, noise and side channels, utility and bias,
access). Their text is in `templates/questions.yaml`. A question that no file answers is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from sweeps.registry.card import NEIGHBOURS
from sweeps.store.records import Point
from sweeps.text.figures import (
    NO_GUARANTEE,
    delta_words,
    ends_early,
    epsilon_text,
    noise_read_words,
    number,
)
from trainables.config import TrialSpec


@dataclass(frozen=True)
class Answer:
    """A question of a review; `open` if the record does not answer it, or the answer is unfavourable."""

    question: str
    text: str
    open: bool


@dataclass(frozen=True)
class Both:
    """A figure as the ledger declares it, and as it was measured."""

    declared: float
    measured: float


@dataclass(frozen=True)
class Verified:
    """The document that `edp-sweep verify --json` prints."""

    violations: list[dict[str, str]]
    sensitivity: Both
    noise_std: Both
    steps: int


@dataclass(frozen=True)
class Known:
    """The record that answers the questions.

    Args:
        report: the command that verifies the configuration.
        confirm: the command that retrains it with new seeds.
        examples: the number of training utterances; None if unknown.
        users: the number of users in the training split; None if unknown.
        cost: ε of the whole sweep in words.
        choice: what chose the configuration, and whether ε covers that (`sweeps.config.choice`).
        verified: the findings of `edp-sweep verify` on this configuration, if it was run.
        seeds: number of trainings with new seeds.
        attacks: documents of the attacks' results.
        proxy: the public corpus that the configuration was chosen on; None if it was chosen on the private corpus.
    """

    report: str
    confirm: str
    spec: TrialSpec
    chosen: Point
    baseline: dict[str, Any]
    examples: int | None
    users: int | None
    cost: str
    choice: str
    verified: Verified | None
    seeds: int
    attacks: list[dict[str, Any]]
    versions: dict[str, str]
    proxy: str | None = None

    @property
    def delta(self) -> tuple[str, bool]:
        """The judgement of δ, and whether it is small (`sweeps.text.figures.delta_words`)."""
        counted, n = ("user", self.users) if self.spec.edp.unit == "user" else ("utterance", self.examples)
        return delta_words(self.chosen.metrics["delta"], counted, n)


def questions(known: Known) -> list[tuple[str, list[Answer]]]:
    """Return the questions with their answers, by topic."""
    environment = Environment(undefined=StrictUndefined)  # plain text, which the page escapes
    environment.filters |= {
        "noise_read": noise_read_words,
        "epsilon": epsilon_text,
        "number": number,
        "count": "{:,}".format,
    }
    facts = _facts(known)

    def holds(condition: object) -> bool:
        return bool(environment.compile_expression(str(condition), undefined_to_none=False)(**facts))

    def answered(entry: dict[str, Any]) -> Answer:
        text = environment.from_string(entry["answer"]).render(facts)
        return Answer(entry["ask"], " ".join(text.split()), holds(entry.get("open", False)))

    topics = yaml.safe_load(files(__package__).joinpath("templates", "questions.yaml").read_bytes())
    return [
        (topic, [answered(entry) for entry in entries if holds(entry.get("if", True))])
        for topic, entries in topics.items()
    ]


def _facts(known: Known) -> dict[str, Any]:
    """Return the names that conditions and answers use."""
    edp, metrics, ledger = known.spec.edp, known.chosen.metrics, known.chosen.ledger
    entries = ledger.entries if ledger is not None else ()
    return {
        **vars(known),
        "delta": known.delta,
        "edp": edp,
        "metrics": metrics,
        "ledger": ledger,
        "first": entries[0].mechanism if entries else None,
        "epochs": len({entry.epoch for entry in entries}),
        "planned": ends_early(metrics),
        "lost": sum(one.steps for one in ledger.discarded) if ledger is not None else 0,
        "group": ledger.most_of_a_user if ledger is not None and "epsilon_user" in metrics else None,
        "unit": {"example": "utterance", "micro_batch": "micro-batch", "user": "user"}[edp.unit],
        "neighbours": NEIGHBOURS[edp.sampling],
        "private": metrics["epsilon"] < NO_GUARANTEE,
        "no_guarantee": NO_GUARANTEE,
        "workers": known.spec.training.workers,
        "strongest": max(known.attacks, key=lambda one: float(one["auc"]), default=None),
        "commit": known.versions.get("git_commit"),
    }
