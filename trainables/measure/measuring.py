"""The metrics of a trained model: utility, membership attack, audit and guarantee, measured by all workers at once.

Accountants and attacks are imported in functions that only rank 0 runs: without them the other workers start a third
faster.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from edp.ledger import Ledger
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.measure.predictions import MAX_MEMBERS, collect_predictions, members_and_others, utility_metrics
from trainables.models import JointModel
from trainables.records.epochs import EpochLog, epoch_folder, read_ledger
from trainables.records.files import save_arrays
from trainables.records.job import EpochResult, TrialJob
from trainables.records.pareto import Metrics, on_validation

if TYPE_CHECKING:
    from edp.accounting.composition import Composition

# Most members, and non-members, of the attack at a validated epoch. An AUC is accurate to about 0.01 then.
_VALID_MEMBERS = 2_000
# The same for a kept epoch before the last. With all members the attack would take more than 5 % of a trial of
# `atis_clc` (tests/benchmarks/results/attack-cost.json). The interval of AUC is 1.6 times as wide.
EARLIER_MEMBERS = 1_000


def privacy_metrics(ledger: Ledger, delta: float) -> Metrics:
    """Return the epsilons of a training, including that of a user if users are known, and their δ.

    All but `epsilon_executed` count the steps that were planned and did not run, too.
    """
    from edp.accounting.composition import composition_of, composition_of_user
    from edp.accounting.epsilon import epsilon_paper

    user = composition_of_user(ledger)
    return {
        "epsilon": _epsilon(composition_of(ledger), delta),
        "epsilon_executed": _epsilon(composition_of(ledger.executed), delta),
        "epsilon_paper": epsilon_paper(ledger, delta),
        "delta": delta,
    } | ({"epsilon_user": _epsilon(user, delta)} if user is not None else {})


# With Poisson sampling a price may take seconds. That of the plan is asked for after each epoch.
@functools.lru_cache(maxsize=256)
def _epsilon(c: Composition, delta: float) -> float:
    from edp.accounting.epsilon import epsilon_of

    return epsilon_of(c, delta)


def permitted_metrics(ledger: Ledger, delta: float) -> Metrics:
    """Return bounds on any attack on one example, or on one user if that is the unit (`edp.accounting.tradeoff`)."""
    from edp.accounting.tradeoff import gaussian_mu, max_tpr
    from trainables.measure.attacks.auditing import of_examples

    ledger = of_examples(ledger)
    return {
        "gaussian_mu": gaussian_mu(ledger, delta),
        "permitted_tpr_at_1pct_fpr": max_tpr(ledger, 0.01, delta),
        "permitted_tpr_at_01pct_fpr": max_tpr(ledger, 0.001, delta),
    }


def valid_metrics(model: JointModel, corpus: EncodedCorpus, job: TrialJob, device: torch.device, group: Any) -> Metrics:
    """Return utility on the validation split, and the attack's metrics with its utterances as non-members.

    These are the figures that choose: no test utterance is in them. The dictionary is empty on ranks other than 0.
    """
    everybody: dict[str, Any] = {"device": device, "group": group, "features": job.attack is not None}
    valid = collect_predictions(model, corpus, "valid", None, **everybody)
    found = {f"valid_{k}": v for k, v in utility_metrics(valid, corpus.labels).items()} if valid is not None else {}
    if job.attack is None:
        return found
    members, non_members = members_and_others(corpus, "valid", seed=job.spec.corpus.seed, at_most=_VALID_MEMBERS)
    train = collect_predictions(model, corpus, "train", members, outcomes=False, **everybody)
    if valid is not None and train is not None:
        from trainables.measure.attacks.shadow import attack_metrics, attack_scores, load_attack

        attack = load_attack(job.attack)
        inside, outside = train.seen()[0], valid.seen()[0][non_members]
        scores = attack_scores(attack, inside), attack_scores(attack, outside)
        found |= {f"valid_{name}": value for name, value in attack_metrics(*scores).items()}
    return found


def earlier_epochs(
    model: JointModel, corpus: EncodedCorpus, job: TrialJob, device: torch.device, group: Any, log: EpochLog | None
) -> list[EpochResult]:
    """Return the metrics of the kept epochs before the last, on rank 0, with an attack on fewer utterances.

    Their costs are those of training up to the epoch, without this measurement. `model` ends up with the weights of one
    of these epochs.
    """
    kept = [log.finish() if log is not None else []]
    dist.broadcast_object_list(kept, src=0, group=group)
    measured = []
    for epoch in kept[0]:
        folder = epoch_folder(job.output, epoch)
        saved = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
        model.load_state_dict(saved["state_dict"])
        ledger = read_ledger(folder)
        assert ledger is not None
        own = replace(job, output=folder)
        found = final_metrics(model, corpus, own, device, group, at_most=EARLIER_MEMBERS)
        if found is not None and log is not None:
            found |= privacy_metrics(ledger, job.spec.edp.delta) | permitted_metrics(ledger, job.spec.edp.delta)
            spent = log.by_epoch[epoch]
            found |= on_validation(spent)
            found |= {name: spent[name] for name in ("trial_seconds", "gpu_seconds", "worker_seconds")}
            found["dropped_gradients"] = spent.get("dropped_gradients", 0.0)
            seconds = [metrics["epoch_seconds"] for n, metrics in log.by_epoch.items() if n <= epoch]
            found["seconds_per_epoch"] = float(np.median(seconds))
            measured.append(EpochResult(epoch, found))
    return measured


def final_metrics(
    model: JointModel,
    corpus: EncodedCorpus,
    job: TrialJob,
    device: torch.device,
    group: Any,
    *,
    at_most: int = MAX_MEMBERS,
) -> Metrics | None:
    """Return the test metrics, with an attack those of membership inference, and with canaries those of an audit.

    Rank 0 writes the arrays that an attack sees of the model. The other ranks return None.

    Args:
        at_most: most members to attack, and most non-members.
    """
    everybody: dict[str, Any] = {"device": device, "group": group, "features": True}
    test = collect_predictions(model, corpus, "test", None, **everybody)
    members, non_members = members_and_others(corpus, "test", seed=job.spec.corpus.seed, at_most=at_most)
    train = collect_predictions(model, corpus, "train", members, outcomes=False, **everybody)
    canaries = (
        collect_predictions(model, corpus, "canaries", outcomes=False, **everybody) if corpus.size("canaries") else None
    )
    if test is None or train is None:
        return None
    from trainables.measure.attacks.auditing import audit, canary_scores
    from trainables.measure.attacks.canary import read_coins
    from trainables.measure.attacks.shadow import attack_metrics, attack_scores, load_attack

    metrics = utility_metrics(test, corpus.labels)
    (inside, inside_losses), (outside, outside_losses) = train.seen(), test.seen()
    outside, outside_losses = outside[non_members], outside_losses[non_members]
    seen: dict[str, Any] = {
        "members": inside,
        "non_members": outside,
        "member_losses": inside_losses,
        "non_member_losses": outside_losses,
    }
    if canaries is not None and job.coins is not None:
        seen["canary_losses"] = canaries.seen()[1]
        metrics |= audit(canary_scores(seen["canary_losses"]), read_coins(job.coins), job.spec.edp.delta).metrics()
    job.output.mkdir(parents=True, exist_ok=True)
    save_arrays(job.output / "attack_features.npz", **seen)
    if job.attack is not None:
        attack = load_attack(job.attack)
        metrics |= attack_metrics(attack_scores(attack, inside), attack_scores(attack, outside))
    return metrics


def contents(model: torch.nn.Module, corpus: EncodedCorpus) -> dict[str, Any]:
    """Return the contents of `model.pt`: weights, labels, splits trained on, and the architecture of an encoder."""
    architecture = getattr(model, "architecture", None)
    return {
        "state_dict": {k: v.cpu() for k, v in model.state_dict().items()},
        "labels": corpus.labels.to_dict(),
        "trained_on": "train" if corpus.size("valid") else "train+valid",
    } | ({} if architecture is None else {"encoder": architecture})
