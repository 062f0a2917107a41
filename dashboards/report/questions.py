"""What a privacy review asks of a model, answered from the sweep's own record, or marked open.

The questions follow Ponomareva et al., "How to DP-fy ML" (2023), section 5.3 (setting, definition, accounting,
verification) and NIST SP 800-226 (2025) (unit and trust, sensitivity, noise and side channels, utility and bias,
access). No answer is made up: what nothing on the disk says is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edp.ledger import Ledger
from sweeps.formatting.figures import epsilon_text, number
from sweeps.formatting.guarantee import NO_GUARANTEE
from sweeps.registry.card import NEIGHBOURS
from sweeps.state.records import Point
from trainables.spec import TrialSpec


@dataclass(frozen=True)
class Answer:
    """A question of a review; `open` where the record does not answer it, or answers badly."""

    question: str
    text: str
    open: bool = False


@dataclass(frozen=True)
class Both:
    """A figure as the ledger declares it and as it was measured."""

    declared: float
    measured: float


@dataclass(frozen=True)
class Verified:
    """What `edp-sweep verify --json` prints."""

    violations: list[dict[str, str]]
    sensitivity: Both
    noise_std: Both
    pairs: int


@dataclass(frozen=True)
class Known:
    """What answers draw on.

    Args:
        report, confirm: the commands that verify the configuration, and train it again with new seeds.
        examples: training utterances; None: not known.
        users: who said them; None: not known.
        cost: ε of the whole sweep in words.
        verified: what `edp-sweep verify` found of this configuration, if it was run.
        seeds: how many trainings with new seeds there are.
        attacks: documents of what attacks found.
    """

    report: str
    confirm: str
    spec: TrialSpec
    chosen: Point
    baseline: dict[str, Any]
    examples: int | None
    users: int | None
    cost: str
    verified: Verified | None
    seeds: int
    attacks: list[dict[str, Any]]
    versions: dict[str, str]


def questions(known: Known) -> list[tuple[str, list[Answer]]]:
    """The answers, by topic."""
    return [
        ("Setting", _setting(known)),
        ("What is guaranteed", _definition(known)),
        ("Mechanism and accounting", _accounting(known)),
        ("Whether it is so", _verification(known)),
        ("Use, access and what lies outside", _outside(known)),
    ]


def _setting(known: Known) -> list[Answer]:
    workers = known.spec.training.workers
    alone = "" if workers == 1 else f" The {workers} workers send sums that carry only their share of the noise."
    return [
        Answer(
            "Who sees data before there is noise?",
            f"Whoever runs the training: the model is central, the aggregator trusted.{alone} Nobody is protected from "
            "them.",
        ),
        Answer(
            "Which reads of the private data does ε cover?",
            "All steps that made the weights, from the first on, those lost in a crash too. Not: validation and test "
            "figures, attacks, the SGD baseline, and that this configuration was chosen by such figures.",
        ),
        Answer(
            "What may be released?",
            "The weights, those after every epoch before it too, and whatever is computed from them. Not this report.",
        ),
    ]


def _definition(known: Known) -> list[Answer]:
    edp, metrics = known.spec.edp, known.chosen.metrics
    unit = {"example": "utterance", "micro_batch": "micro-batch", "user": "user"}[edp.unit]
    n, counted = (known.users, "user") if edp.unit == "user" else (known.examples, "utterance")
    delta = metrics["delta"]
    if n is None:
        size = Answer(
            "Is δ small for so much data?", f"δ = {delta:g}; how many {counted}s there were is not known.", True
        )
    else:
        big = delta * n >= 1
        size = Answer(
            "Is δ small for so much data?",
            f"δ = {delta:g} with {n:,} training {counted}s: δ·n = {delta * n:.2g}"
            + (f". From 1/n on, publishing one {counted} now and then would pass; less is asked for." if big else "."),
            big,
        )
    of_user = f"; of a user {epsilon_text(metrics['epsilon_user'])}" if "epsilon_user" in metrics else ""
    return [
        Answer(
            "What are ε and δ?",
            f"ε = {epsilon_text(metrics['epsilon'])}{of_user} at δ = {delta:g}.",
            not _private(known),
        ),
        size,
        Answer("What is the unit of privacy?", f"One {unit}."),
        Answer(
            "Which data sets are neighbours?", f"Two of which one has one {unit} fewer: {NEIGHBOURS[edp.sampling]}."
        ),
        _of_one_person(known, unit),
    ]


def _of_one_person(known: Known, unit: str) -> Answer:
    edp, metrics, ledger = known.spec.edp, known.chosen.metrics, known.chosen.ledger
    asked = "How much may one person contribute?"
    if edp.unit == "user":
        most = "All of a user's utterances" if edp.user_utterances is None else f"{edp.user_utterances} utterances"
        return Answer(
            asked, f"{most} an epoch, drawn without looking at any data; their summed gradient is clipped as a whole."
        )
    if ledger is None or ledger.most_of_a_user is None or "epsilon_user" not in metrics:
        return Answer(
            asked, f"Nothing bounds how many {unit}s are one person's; k of them are protected as a group, less.", True
        )
    epsilon = metrics["epsilon_user"]
    return Answer(
        asked,
        f"Nothing bounds it. In this corpus {ledger.most_of_a_user:,} utterances at most are one user's: as a group "
        f"they are protected at ε = {epsilon_text(epsilon)}.",
        epsilon >= NO_GUARANTEE,
    )


def _accounting(known: Known) -> list[Answer]:
    edp, ledger = known.spec.edp, known.chosen.ledger
    if ledger is None or not ledger.entries:
        return [Answer("What was executed?", "The ledger is not there.", True)]
    first = ledger.entries[0].mechanism
    twice = (
        "" if first.single_example or first.unit != "example" else ", twice the clip, since a micro-batch holds several"
    )
    later = "" if edp.decay == "none" else f"; later less (decay {edp.decay})"
    if first.sampling == "shuffle":
        sampled = "Shuffled epochs, every unit in one step of each; accounted for as that, with nothing for the order."
        accountant = "the closed form of composed Gaussian mechanisms (Balle & Wang 2018), exact"
    else:
        sampled = (
            f"Poisson: each unit in each step by a coin of its own, with probability {first.rate:.3g}; accounted for "
            "as that. The draws are secret."
        )
        accountant = "privacy loss distributions (Koskela et al. 2020), rounded so that ε is an upper bound"
    return [
        Answer("What was executed?", _executed(ledger)),
        Answer(
            "How far can one unit move a step?",
            f"At most {number(first.sensitivity())} in the sum of {first.N:,} clipped gradients (L2), at C = "
            f"{number(first.C)}{twice}.",
            not _private(known),
        ),
        Answer(
            "How much noise hides that?",
            f"A Gaussian of standard deviation {number(first.noise_std() * first.N)} in each coordinate of that sum, "
            f"in the first epoch: {number(first.effective_noise_multiplier())} times the sensitivity{later}.",
            not _private(known),
        ),
        Answer("How were units drawn, and how is that accounted for?", sampled),
        Answer("Which accountant?", f"{accountant[0].upper()}{accountant[1:]}; from the ledger of executed steps."),
        Answer(
            "What did choosing hyperparameters cost?",
            f"The weights of all trials together: ε = {known.cost}. The choice itself read validation figures without "
            "noise, which no ε covers.",
            True,
        ),
        Answer(
            "Where does the noise come from?",
            "From a seed that somebody knows: it hides nothing."
            if first.replayable
            else "From the operating system's randomness, by way of seeds that were in memory only.",
            first.replayable,
        ),
        Answer(
            "What of floating point?",
            "Noise is drawn on no grid: attacks on the low bits of what is released (Mironov 2012) are not excluded.",
            True,
        ),
    ]


def _executed(ledger: Ledger) -> str:
    epochs = len({entry.epoch for entry in ledger.entries})
    words = f"{ledger.steps:,} noised steps in {epochs:,} epochs"
    if ledger.alpha_release is not None:
        words += ", and one estimate of the layer scales with noise"
    lost = sum(one.steps for one in ledger.discarded)
    return f"{words}{f'; {lost:,} more were lost in crashes, and are counted' if lost else ''}."


def _verification(known: Known) -> list[Answer]:
    metrics, verified = known.chosen.metrics, known.verified
    if verified is None:
        measured = Answer(
            "Was the mechanism measured on this model?",
            f"Not of this configuration: {known.report} does it.",
            True,
        )
    else:
        faults = "; ".join(f"{one['parameter']}: {one['what']}" for one in verified.violations)
        sensitivity, noise = verified.sensitivity, verified.noise_std
        measured = Answer(
            "Was the mechanism measured on this model?",
            f"Yes, over {verified.pairs} pairs of neighbours: sensitivity {sensitivity.declared:.4g} declared, at most "
            f"{sensitivity.measured:.4g} measured; standard deviation of the noise {noise.declared:.4g} and "
            f"{noise.measured:.4g}. {faults or 'No violation.'}",
            bool(faults),
        )
    audited = metrics.get("epsilon_audited")
    strongest = max(known.attacks, key=lambda one: float(one["auc"]), default=None)
    return [
        measured,
        Answer(
            "What has an audit shown?",
            "There was none: the recipe has no canaries."
            if audited is None
            else f"ε ≥ {audited:.3g} with 95 % confidence, by planted canaries.",
            audited is None,
        ),
        Answer(
            "What have attacks found?",
            "What they saw is no longer there."
            if strongest is None
            else f"The strongest of {len(known.attacks)}, {strongest['name']}: AUC {strongest['auc']:.3f}, 95 % "
            f"{strongest['auc_ci'][0]:.3f} to {strongest['auc_ci'][1]:.3f}.",
            strongest is None,
        ),
        Answer(
            "Does it hold with other seeds?",
            f"Trained again with {known.seeds} other seeds, see the choice."
            if known.seeds
            else f"Not tried: {known.confirm} does it.",
            not known.seeds,
        ),
    ]


def _outside(known: Known) -> list[Answer]:
    metrics, baseline = known.chosen.metrics, known.baseline
    commit = known.versions.get("git_commit")
    return [
        Answer(
            "What does privacy cost in use?",
            f"SER {metrics['ser']:.2%}"
            + (
                f", {baseline['ser']:.2%} without privacy."
                if "ser" in baseline
                else "; without privacy it is not known."
            ),
            "ser" not in baseline,
        ),
        Answer(
            "Does it cost some people more than others?",
            "Not measured here. Elsewhere those of whom there was little data lost most (Bagdasaryan et al. 2019).",
            True,
        ),
        Answer(
            "Who may read what holds private data?",
            "The record does not say. It lies in the corpus's own files, runs/cache, attack_features.npz in trials' "
            "folders, and the figures of this report.",
            True,
        ),
        Answer(
            "Do time or memory tell something?",
            "Not measured. How long a step takes depends on the lengths of its utterances.",
            True,
        ),
        Answer(
            "Was the data collected and kept as it should be?",
            "Outside what a training can know.",
            True,
        ),
        Answer(
            "Can somebody else check it?",
            f"The code is of commit {commit[:12]}; versions, recipe and configuration are below."
            if commit
            else "Versions, recipe and configuration are below; which commit of the code it was is not recorded.",
            not commit,
        ),
    ]


def _private(known: Known) -> bool:
    return bool(known.chosen.metrics["epsilon"] < NO_GUARANTEE)
