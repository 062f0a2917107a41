"""Attack made-up models whose members have a known signal: do LiRA and its intervals find it, and what do halves cost?

    python -m tests.benchmarks.calibration
    python -m tests.benchmarks.calibration --real atis_clc:corpus.utterances=1500   # what real figures changed by

*confidences*: an utterance's logit confidence is normal over models, one unit more for members; the variances of
utterances are alike, or differ (inverse gamma, four degrees of freedom). LiRA is compared with earlier estimates of the
variance, and with an attacker who knows each distribution.

*sums*: a model is the noisy sum of its training vectors, as a linear model nearly is. References are random halves of
the pool of members and non-members, as in the product, or of vectors that nobody trained on, as of an attacker who does
not know the others.

*real*: a recipe's baseline without privacy and four references, by LiRA and intervals as they are and as they were.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from sweeps.config.loading import load_recipe
from sweeps.config.recipe import example_params
from sweeps.config.target_epsilon import resolve
from sweeps.engine.prepare import ensure_states
from tests.benchmarks.machine import about
from trainables.corpora import load_corpus
from trainables.corpora.schema import public_text
from trainables.features.encoded_corpus import encode
from trainables.features.states import has_states
from trainables.measure.attacks.likelihood import lira_scores, logit_confidence
from trainables.measure.attacks.roc import auc, clopper_pearson, rates_at_fpr, tpr_interval
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.training.references import (
    ReferenceModel,
    read_references,
    reference_spec,
    score_target,
    train_reference,
)
from trainables.workers.worker import run_trial

RESULTS = Path(__file__).parent / "results" / "calibration.json"
Floats = NDArray[np.float64]
_LEVEL = 0.01


def halves(rng: np.random.Generator, references: int, n: int) -> NDArray[np.bool_]:
    """Return random halves of n utterances and the other halves, in turn."""
    found = []
    for _ in range(references // 2):
        half = rng.permutation(n) < n // 2
        found += [half, ~half]
    return np.array(found)


def losses_of(confidence: Floats) -> Floats:
    return np.logaddexp(0, -confidence)


def earlier(target_n: Floats, values_kn: Floats, inside_kn: NDArray[np.bool_], own: bool, online: bool) -> Floats:
    """Return scores of LiRA with normal distributions of one variance for all utterances, or of each one's own."""

    def fitted(chosen_kn: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        count_n = chosen_kn.sum(0)
        mean_n = (values_kn * chosen_kn).sum(0) / count_n
        squares_n = ((values_kn - mean_n) ** 2 * chosen_kn).sum(0)
        pooled_n = np.full(len(count_n), squares_n.sum() / (count_n - 1).sum())
        return mean_n, np.sqrt((squares_n / (count_n - 1) if own else pooled_n) + 1e-12)

    mean_n, std_n = fitted(~inside_kn)
    if not online:
        return np.asarray((target_n - mean_n) / std_n)
    return np.asarray(norm.logpdf(target_n, *fitted(inside_kn)) - norm.logpdf(target_n, mean_n, std_n))


def confidences(references: int, alike: bool, online: bool, n: int = 4000, worlds: int = 10) -> dict[str, Any]:
    """Return the mean TPR at 1 % FPR of each estimate, and its FPR for the widest tenth of the utterances."""
    rng = np.random.default_rng(references)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(worlds):
        std_n = np.ones(n) if alike else np.sqrt(4 / rng.chisquare(4, n))
        ease_n, member_n, inside_kn = rng.normal(0, 3, n), np.arange(n) < n // 2, halves(rng, references, n)
        values_kn = ease_n + inside_kn + std_n * rng.normal(size=(references, n))
        target_n = ease_n + member_n + std_n * rng.normal(size=n)
        known = (target_n - ease_n) / std_n if not online else (target_n - ease_n - 0.5) / std_n**2
        every = {
            "now": lira_scores(losses_of(target_n), losses_of(values_kn), inside_kn, online=online),
            "one_variance": earlier(target_n, values_kn, inside_kn, own=False, online=online),
            "own_variance": earlier(target_n, values_kn, inside_kn, own=True, online=online),
            "who_knows": known,
        }
        for name, scores_n in every.items():
            inside, outside = scores_n[member_n], scores_n[~member_n]
            wide = np.argsort(std_n[~member_n])[-n // 20 :]
            above = outside > np.quantile(outside, 1 - _LEVEL)
            found.setdefault(name, []).append((rates_at_fpr(inside, outside, _LEVEL)[0], float(above[wide].mean())))
    figures = {
        name: dict(zip(("tpr", "fpr_of_widest"), np.mean(ones, 0).tolist(), strict=True))
        for name, ones in found.items()
    }
    return {"references": references, "variances": "alike" if alike else "differ", "online": online, **figures}


def sums(references: int, fresh: bool, each: int, worlds: int, width: int = 1000) -> dict[str, Any]:
    """Return TPR at 1 % FPR of offline LiRA over all worlds, and how often each interval holds it."""
    rng = np.random.default_rng(each)
    inside, outside = [], []
    for _ in range(worlds):
        pool_nd = rng.normal(0, width**-0.5, (2 * each, width))
        member_n = np.arange(2 * each) < each
        noise = 0.1 * rng.normal(0, (each / width) ** 0.5, (references + 1, 2 * each))

        def scored(models_kd: Floats, pool_nd: Floats = pool_nd) -> Floats:
            return np.asarray(models_kd @ pool_nd.T)

        target_n = scored(pool_nd[:each].sum(0)) + noise[0]
        if fresh:
            other_kd = rng.normal(0, (each / width) ** 0.5, (references, width))
            values_kn, inside_kn = scored(other_kd), np.zeros((references, 2 * each), bool)
        else:
            inside_kn = halves(rng, references, 2 * each)
            values_kn = scored(inside_kn @ pool_nd)
        # Confidences of a trained model are far from 0, where a loss would lose digits.
        scores_n = lira_scores(losses_of(target_n), losses_of(values_kn + noise[1:]), inside_kn, online=False)
        inside.append(scores_n[member_n])
        outside.append(scores_n[~member_n])
    truth = rates_at_fpr(np.concatenate(inside), np.concatenate(outside), _LEVEL)[0]

    def holds(interval: Callable[[Floats, Floats], tuple[float, float]]) -> float:
        found = [interval(*one) for one in zip(inside, outside, strict=True)]
        return float(np.mean([low <= truth <= high for low, high in found]))

    return {
        "references": references,
        "references_of": "other vectors" if fresh else "halves of the pool",
        "of_each_kind": each,
        "worlds": worlds,
        "tpr": truth,
        "gap_in_standard_deviations": float(norm.isf(_LEVEL) - norm.isf(truth)),
        "interval_holds": holds(_around),
        "threshold_taken_as_known_holds": holds(_at_threshold),
    }


def real(words: str, folder: Path, references: int = 4) -> dict[str, Any]:
    """Train a recipe's model without privacy and its references, and return the TPRs at 1 % FPR, now and before."""
    name, *settings = words.split(":")
    recipe = load_recipe(name, ["training.workers=1", *settings])[1]
    splits = load_corpus(recipe.corpus)
    spec = resolve(recipe, {**example_params(recipe), "z0": 1.0}, len(splits.train)).spec
    spec = spec.model_copy(update={"training": spec.non_private_training()})
    text = public_text(spec.corpus) if has_states(spec.model) else []
    encode(splits, spec.model, folder / "corpus", text=text)
    ensure_states([folder / "corpus"], [spec.model], lambda _: None)
    job = TrialJob(spec, folder / "corpus", folder / "target")
    with alone():
        assert run_trial(job, lambda epoch, metrics: None) is not None
    seen = score_target(spec, job.corpus, job.output / "model.pt")
    outputs = [folder / f"{k}.npz" for k in range(references)]
    for k, output in enumerate(outputs):
        train_reference(ReferenceModel(reference_spec(spec, "sgd", k), job.corpus, output, k), lambda _: None)
    others = read_references(outputs)
    losses_n = np.concatenate([seen["member_losses"], seen["non_member_losses"]])
    member_n = np.arange(len(losses_n)) < len(seen["member_losses"])
    values_kn, inside_kn = logit_confidence(others["losses_kn"]), others["inside_kn"]
    found: dict[str, Any] = {"recipe": words, "of_each_kind": int(member_n.sum()), "references": references}
    for online in (True, False):
        ways = {
            "now": (lira_scores(losses_n, others["losses_kn"], inside_kn, online=online), _around),
            "before": (
                earlier(logit_confidence(losses_n), values_kn, inside_kn, own=False, online=online),
                _at_threshold,
            ),
        }
        for way, (scores_n, interval) in ways.items():
            inside, outside = scores_n[member_n], scores_n[~member_n]
            tpr = rates_at_fpr(inside, outside, _LEVEL)[0]
            area = auc(inside, outside)
            found[f"{'online' if online else 'offline'}_{way}"] = {
                "tpr": tpr,
                "ci": interval(inside, outside),
                "auc": area,
            }
    return found


def _around(inside: Floats, outside: Floats) -> tuple[float, float]:
    return tpr_interval(inside, outside, _LEVEL)


def _at_threshold(inside: Floats, outside: Floats) -> tuple[float, float]:
    """Return the interval that was shown before: Clopper and Pearson's at the non-members' own threshold."""
    tpr = rates_at_fpr(inside, outside, _LEVEL)[0]
    return clopper_pearson(round(tpr * len(inside)), len(inside))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--real", default="", help="recipes with their settings, instead of simulations")
    wanted = [words for words in asked.parse_args().real.split(",") if words]
    torch.set_num_threads(1)
    document = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if wanted:
        for words in wanted:
            with tempfile.TemporaryDirectory() as folder:
                row = real(words, Path(folder))
            print(json.dumps(row), flush=True)
            document["real"] = [one for one in document.get("real", []) if one["recipe"] != words] + [row]
    else:
        document["confidences"] = [
            confidences(references, alike, online)
            for references in (4, 8, 16, 64)
            for alike in (True, False)
            for online in (True, False)
        ]
        document["sums"] = [
            sums(references, fresh, each, worlds)
            for references, each, worlds in ((4, 500, 400), (16, 500, 200), (4, 1000, 100), (16, 1000, 100))
            for fresh in (False, True)
        ]
        for row in (*document["confidences"], *document["sums"]):
            print(json.dumps(row))
    RESULTS.write_text(json.dumps(document | about("calibration", [], "scipy"), indent=1) + "\n")


if __name__ == "__main__":
    main()
