"""Write what a `make sweep` gave to `quickstart.json`, from which the README's table is:

python -m tests.benchmarks.quickstart runs/quickstart --seconds 150
"""

from __future__ import annotations

import argparse
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_text, read_text
from tests.benchmarks.machine import machine, versions
from trainables.records.pareto import Metrics

OUTPUT = Path(__file__).parent / "results" / "quickstart.json"
_KEPT = ("ser", "mia_auc", "epsilon", "epsilon_paper", "epsilon_read", "epsilon_read_upper")
_ENDS = ("", "_lower", "_upper")


def row(trained: str, corpus: str, params: dict[str, Any], metrics: Metrics, **more: Any) -> dict[str, Any]:
    """Return the figures of a model that the result keeps; an infinite one is null."""
    names = [f"{split}{name}{end}" for name in _KEPT for split in ("", "valid_") for end in _ENDS]
    found = {name: metrics[name] for name in (*dict.fromkeys(names), "delta", "trial_seconds") if name in metrics}
    figures = {name: value if math.isfinite(value) else None for name, value in found.items()}
    return {"trained": trained, "corpus": f"{corpus} corpus", **more, "params": params, **figures}


def document(sweep: Sweep, seconds: float, remark: str) -> dict[str, Any]:
    """Return the result of a sweep that has released a model."""
    found = Snapshot(sweep)
    trials, release, plan = found.trials, found.release, found.plan
    assert release is not None
    assert plan is not None
    noisy, names = {one.key for one in found.front if one.hollow}, {one.key for one in found.front}
    points = sorted((p for t in trials for p in t.points), key=lambda point: point.metrics["epsilon"])
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "command": "make sweep",
        "remark": f"{remark}; an epsilon of null is infinite",
        "seconds": seconds,
        "epsilon_in_all": found.epsilon,
        "machine": machine(),
        "versions": versions(),
        "rows": [
            row("released", "private", release.params, release.metrics, trial=release.trial),
            row("sgd", "public", {}, {k: v for k, v in (sweep.record.baseline or {}).items() if k != "run_id"}),
            *(
                row(
                    p.spec.training.method,
                    "public",
                    p.params,
                    p.metrics,
                    trial=p.trial,
                    front="hollow" if p.name in noisy else p.name in names,
                )
                for p in points
            ),
        ],
    }


def readme_rows(result: dict[str, Any]) -> list[str]:
    """Return the lines of the README's table: the front, the paper's mechanism, SGD, and the released model."""
    trials = [one for one in result["rows"] if "front" in one]
    averages = sorted((one for one in trials if one["trained"] == "edp"), key=lambda one: one["ser"])
    within = [one for one in averages if one["epsilon"] <= 8]
    rows = [(_WORDS[one["trained"]], one) for one in trials if one["front"] is True]
    rows += [(_WORDS["edp"], one) for one in [*within[:1], *averages[:1]] if one["front"] is not True]
    rows += [
        (_WORDS[one["trained"]], one)
        for name in ("sgd", "released")
        for one in result["rows"]
        if one["trained"] == name
    ]
    return [_line(words, one, result["epsilon_in_all"]) for words, one in rows]


_WORDS = {
    "dpsgd": "per-utterance clipping",
    "edp": "the paper's mechanism",
    "sgd": "without privacy",
    "released": "the released model",
}


def _line(words: str, one: dict[str, Any], in_all: float) -> str:
    epsilon = "∞" if one["epsilon"] is None else epsilon_text(one["epsilon"])
    cells = [words, one["corpus"].partition(" ")[0], f"{one['ser']:.1%}".replace("%", " %"), f"{one['mia_auc']:.2f}"]
    if one["trained"] != "released":
        return f"| {' | '.join([*cells, epsilon, read_text(one)])} |"
    assert one["epsilon"] == in_all
    return f"| {' | '.join(f'**{cell}**' for cell in [*cells, f'{epsilon} in all', read_text(one)])} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--remark", default="on two cores with nothing beside it")
    given = parser.parse_args()
    found = document(Sweep(given.folder.parent, given.folder.name), given.seconds, given.remark)
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(readme_rows(found)))
