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
from sweeps.text.figures import NO_GUARANTEE, ends_early, epsilon_text, noise_read_words, number
from trainables.config import TrialSpec


@dataclass(frozen=True)
class Answer:
    """A question of a review; `open` if the record does not answer it, or the answer is unfavourable."""

    question: str
    text: str
    open: bool


def questions(spec: TrialSpec, chosen: Point, **record: Any) -> list[tuple[str, list[Answer]]]:
    """Return the questions on the model `chosen` of a configuration with their answers, by topic.

    Args:
        record: the other names that `templates/questions.yaml` uses: `report` and `confirm`, the commands that verify
            and retrain the configuration; `baseline`; `users`, their number in the training split, or None; `delta`, of
            `delta_words`; `cost`, ε of the whole sweep in words; `choice`; `proxy`; `verified`, the document of
            `edp-sweep verify`, or None; `seeds`, the number of trainings with new seeds; `attacks`, documents; and
            `versions`.
    """
    environment = Environment(undefined=StrictUndefined)  # plain text, which the page escapes
    environment.filters |= {
        "noise_read": noise_read_words,
        "epsilon": epsilon_text,
        "number": number,
        "count": "{:,}".format,
    }
    edp, metrics, ledger = spec.edp, chosen.metrics, chosen.ledger
    entries = ledger.entries if ledger is not None else ()
    facts = {
        **record,
        "spec": spec,
        "chosen": chosen,
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
        "workers": spec.training.workers,
        "strongest": max(record["attacks"], key=lambda one: float(one["auc"]), default=None),
        "commit": record["versions"].get("git_commit"),
    }

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
