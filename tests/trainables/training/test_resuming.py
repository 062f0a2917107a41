"""A trial that is cut off, stopped or kept on its way: it goes on to the same end, and its ledger is what was run."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from edp.accounting.epsilon import epsilon
from edp.accounting.tradeoff import gaussian_mu
from edp.ledger import Ledger, planned_ledger
from edp.noise.gaussian import alpha_stream, count_stream, stream
from tests.support.resuming import epochs_run, interrupted
from tests.support.tiny import corpus, run, spec, trial, weights
from tests.support.workers import run_workers
from trainables.measure.attacks.shadow import fit_attack
from trainables.records.epochs import read_curve, read_ledger
from trainables.records.files import write_json
from trainables.records.job import Stop, TrialFailed, TrialJob, TrialResult
from trainables.records.pareto import on_validation
from trainables.training.checkpoint import discard_checkpoint, load_checkpoint
from trainables.workers.worker import run_trial

__all__ = ["corpus"]


@pytest.mark.slow
def test_an_epoch_at_a_learning_rate_of_nearly_nothing_leaves_the_weights(corpus: Path, tmp_path: Path) -> None:
    """What the schedule says is what the optimiser does, also after a restart."""
    training = {"method": "sgd", "epochs": 2, "learning_rate_decay": "linear"}
    job = TrialJob(spec(training=training), corpus, tmp_path / "out")
    run_workers(interrupted, 1, job, 1)
    before = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)
    run_workers(trial, 1, job)
    rate = job.spec.training.learning_rate
    steps = before["step"]
    first = torch.cat([t.flatten() for t in before["model"].values()])
    moved = (weights(tmp_path / "out") - first).abs().max()
    assert 0 < moved <= 1.5 * steps * rate / 2, "an Adam step moves a weight by about the learning rate at most"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["edp", "sgd"])
def test_a_trial_that_was_killed_goes_on_from_its_last_epoch_to_the_same_end(
    method: str, corpus: Path, tmp_path: Path
) -> None:
    training = {"method": method, "workers": 2, "epochs": 3}
    whole = run(corpus, tmp_path / "whole", 2, training=training)[0]
    cut = TrialJob(spec(training=training), corpus, tmp_path / "cut")
    run_workers(interrupted, 2, cut, 2)
    resumed = run_workers(epochs_run, 2, cut)[0]
    assert resumed[0] == [3], "only the epoch that was missing is run"
    assert resumed[1].ledger == whole.ledger
    assert resumed[1].metrics["epsilon"] == whole.metrics["epsilon"]
    torch.testing.assert_close(weights(tmp_path / "cut"), weights(tmp_path / "whole"), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_clip_that_moves_goes_on_from_where_it_was(corpus: Path, tmp_path: Path) -> None:
    training, edp = {"workers": 2, "epochs": 3}, {"clip": "quantile"}
    whole = run(corpus, tmp_path / "whole", 2, training=training, edp=edp)[0]
    cut = TrialJob(spec(training=training, edp=edp), corpus, tmp_path / "cut")
    run_workers(interrupted, 2, cut, 2)
    clip = torch.load(cut.output / "checkpoint.pt", weights_only=True)["clip"]
    assert clip != cut.spec.edp.C
    assert run_workers(epochs_run, 2, cut)[0][1].ledger == whole.ledger
    after = [torch.load(folder / "checkpoint.pt", weights_only=True)["clip"] for folder in (cut.output, whole_of(cut))]
    assert after[0] == pytest.approx(after[1], rel=1e-6)
    assert after[0] != clip
    torch.testing.assert_close(weights(cut.output), weights(whole_of(cut)), rtol=0, atol=1e-6)


def whole_of(cut: TrialJob) -> Path:
    """Where the same trial ran that was not cut off."""
    return cut.output.with_name("whole")


@pytest.mark.slow
def test_a_trial_whose_result_nobody_heard_is_measured_again_and_not_trained_again(
    corpus: Path, tmp_path: Path
) -> None:
    job = TrialJob(spec(edp={"reproducible_noise": None}), corpus, tmp_path / "out")
    (first,) = run_workers(trial, 1, job)
    trained = weights(job.output)
    ((seen, again),) = run_workers(epochs_run, 1, job)
    assert seen == []
    assert again.ledger == first.ledger
    assert again.metrics["ser"] == first.metrics["ser"]
    assert torch.equal(weights(job.output), trained)
    discard_checkpoint(job.output)
    ((seen, _),) = run_workers(epochs_run, 1, job)
    assert seen == [1, 2], "what was heard is over: the same job is another run"


@pytest.mark.slow
def test_a_checkpoint_of_another_configuration_is_not_taken_for_ones_own(corpus: Path, tmp_path: Path) -> None:
    one = TrialJob(spec(training={"epochs": 2}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, one, 1)
    other = TrialJob(spec(training={"epochs": 2}, edp={"C": 0.25}), corpus, tmp_path / "out")
    seen, result = run_workers(epochs_run, 1, other)[0]
    assert seen == [1, 2]
    assert {entry.mechanism.C for entry in result.ledger.entries} == {0.25}


@pytest.mark.slow
def test_a_checkpoint_that_is_damaged_in_any_way_gives_way_to_the_one_before(corpus: Path, tmp_path: Path) -> None:
    one = TrialJob(spec(training={"epochs": 3}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, one, 2)
    whole = (one.output / "checkpoint.pt").read_bytes()
    rng = random.Random(0)
    contents = [b"", whole[:100], bytes(len(whole))]
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(4000)] = rng.randrange(256)
        contents.append(bytes(damaged))
    before = torch.load(one.output / "checkpoint-before.pt", weights_only=True)["step"]
    for content in contents:
        (one.output / "checkpoint.pt").write_bytes(content)
        found = load_checkpoint(one.output, one.spec)
        assert found is not None
        assert found.step in (before, 2 * before)


@pytest.mark.slow
def test_a_checkpoint_holds_no_key_of_noise_or_draws_and_no_generator(corpus: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(edp={"reproducible_noise": None}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, job, 1)
    saved = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)
    names = {"spec", "step", "seconds", "ledger", "alpha", "model", "optimizer", "clip", "average", "audit"}
    assert set(saved) == names
    assert set(saved["audit"]) == {"key", "total", "quietest", "steps", "layers"}, "the key is of the coins alone"


READ = {"epsilon_read", "epsilon_read_upper", "noise_factor_at_least", "noise_factor_at_most"}
KNOWN_KEY = bytes(range(7, 39))
KNOWN_ENTROPY = 0x5EC2E7_0123456789_ABCDEF_9876543210


def with_known_secrets(rank: int, world: int, job: TrialJob, after: int | None) -> None:
    """A trial, cut off after an epoch or whole, whose secrets the test knows; what it prints and tells is kept too."""
    import edp.alpha
    import edp.noise.source

    drawn = np.random.SeedSequence
    np.random.SeedSequence = lambda *given: drawn(*given) if given else SimpleNamespace(entropy=KNOWN_ENTROPY)
    edp.noise.source.secret_key = edp.alpha.secret_key = lambda: KNOWN_KEY
    job.output.mkdir(parents=True)
    with (job.output / "printed").open("wb") as printed:
        for number in (1, 2):
            os.dup2(printed.fileno(), number)
    logging.basicConfig(level=logging.DEBUG)
    if after is not None:
        interrupted(rank, world, job, after)
    told: list[Any] = []
    told.append(run_trial(job, lambda epoch, metrics: told.append((epoch, metrics))))
    (job.output / "told").write_bytes(pickle.dumps(told))


@pytest.mark.slow
def test_no_secret_of_the_noise_is_in_anything_that_leaves_a_run(corpus: Path, tmp_path: Path) -> None:
    """Checkpoint, ledger, model, all that is printed, and all that is told to who tracks it, searched for keys and for
    what comes of them: of noise, of private layer scales, of the count that moves the clip and of Poisson's draw."""
    private = spec(edp={"reproducible_noise": None, "alpha": "private", "sampling": "poisson", "clip": "quantile"})
    run_workers(with_known_secrets, 1, TrialJob(private, corpus, tmp_path / "whole"), None)
    run_workers(with_known_secrets, 1, TrialJob(private, corpus, tmp_path / "cut"), 1)
    streams = [stream(KNOWN_KEY, 0, 0), count_stream(KNOWN_KEY, 0, 0), alpha_stream(KNOWN_KEY)]
    entropy = KNOWN_ENTROPY.to_bytes(16, "little")
    secrets = [
        form
        for key in (KNOWN_KEY, entropy, entropy[::-1], *(one.key() for one in streams))
        for form in (key, key.hex().encode(), base64.b64encode(key), str(list(key)).encode())
    ]
    secrets += [str(KNOWN_ENTROPY).encode(), f"{KNOWN_ENTROPY:x}".encode()]
    for one in streams:
        state = one.generator(torch.device("cpu")).get_state().numpy().tobytes()
        secrets.append(state[24 : 24 + 64])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"checkpoint.pt", "model.pt", "ledger.json", "printed", "told"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret in content], path


@pytest.mark.slow
def test_private_scales_are_estimated_and_counted_once_however_often_a_run_is_cut_off(
    corpus: Path, tmp_path: Path
) -> None:
    job = TrialJob(spec(training={"epochs": 3}, edp={"alpha": "private"}), corpus, tmp_path / "out")
    for after in (1, 2):
        run_workers(interrupted, 1, job, after)
    (resumed,) = run_workers(trial, 1, job)
    (whole,) = run(corpus, tmp_path / "whole", 1, training={"epochs": 3}, edp={"alpha": "private"})
    assert resumed.ledger == whole.ledger
    assert resumed.ledger.alpha_release is not None


@pytest.mark.slow
def test_a_run_that_stopped_early_has_a_ledger_of_the_epochs_that_it_ran(corpus: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(training={"epochs": 5}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, job, 2)
    ledger = read_ledger(tmp_path / "out")
    assert ledger is not None
    assert [(entry.epoch, entry.steps) for entry in ledger.entries] == [(0, 4), (1, 4)]
    assert [(entry.epoch, entry.steps) for entry in ledger.not_executed] == [(2, 4), (3, 4), (4, 4)]
    saved = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)
    assert Ledger.model_validate_json(saved["ledger"]) == ledger.executed


@pytest.fixture(scope="module")
def attack(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attack that was fitted to the answers of a model without privacy."""
    folder = tmp_path_factory.mktemp("attack")
    run(corpus, folder, 1, training={"method": "sgd", "epochs": 1})
    with np.load(folder / "attack_features.npz") as features:
        write_json(folder / "attack.json", fit_attack(features["members"], features["non_members"]))
    return folder / "attack.json"


def stopped(rank: int, world: int, job: TrialJob, after: int, measure: bool) -> TrialResult | str | None:
    try:
        # Rank 0 alone knows.
        return run_trial(job, lambda epoch, _: Stop("enough", measure) if (rank, epoch) == (0, after) else None)
    except TrialFailed as error:
        return str(error)


@pytest.mark.slow
def test_kept_epochs_are_the_models_that_so_many_epochs_train(corpus: Path, attack: Path, tmp_path: Path) -> None:
    """On a public corpus their figures too, ε among them: the release is planned to end there."""
    training = {"epochs": 4, "workers": 2}
    job = TrialJob(spec(training=training), corpus, tmp_path / "out", attack, keep=3, public=True)
    result = run_workers(trial, 2, job)[0]
    assert 2 <= len(result.epochs) <= 3  # one that another dominates is not kept
    assert result.epochs[-1].epoch == 4
    assert result.epochs[-1].metrics == result.metrics
    curve = read_curve(job.output)
    assert len(curve) == 4
    for kept in result.epochs:
        chose = on_validation(kept.metrics)
        assert chose == on_validation(curve[kept.epoch - 1]), "each model has the figures that chose it"
        assert {"valid_ser", "valid_ser_lower", "valid_mia_auc", "valid_mia_auc_lower"} <= set(chose)
    for kept in result.epochs[:-1]:
        folder = job.output / "epochs" / str(kept.epoch)
        alone = TrialJob(spec(training=training | {"epochs": kept.epoch}), corpus, tmp_path / str(kept.epoch), attack)
        (other, _) = run_workers(trial, 2, alone)
        torch.testing.assert_close(weights(folder), weights(alone.output), rtol=0, atol=1e-6)
        assert set(kept.metrics) == set(other.metrics) - READ, "one audit reads the whole training"
        for name, value in kept.metrics.items():
            assert name.endswith(("_seconds", "_per_epoch")) or value == pytest.approx(other.metrics[name], abs=1e-3)
        assert read_ledger(folder) == other.ledger == result.ledger.until(kept.epoch)
    assert {path.name for path in (job.output / "epochs").iterdir()} == {str(kept.epoch) for kept in result.epochs[:-1]}


@pytest.mark.slow
def test_a_trial_that_is_stopped_is_measured_where_it_stands(corpus: Path, attack: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(training={"epochs": 6, "workers": 2}, edp=SECRET), corpus, tmp_path / "out", attack, keep=2)
    result, other = run_workers(stopped, 2, job, 3, True)
    assert other is None
    assert result.stopped == "enough"
    assert result.epochs[-1].epoch == 3
    assert {entry.epoch for entry in result.ledger.entries} == {0, 1, 2}
    # A rule on outputs ended it, so the plan is what it guarantees, in all its epochs and files.
    delta = job.spec.edp.delta
    plan = planned_epsilon(job, 6)
    curve = read_curve(job.output)
    assert {m["epsilon"] for m in (result.metrics, *curve, *(kept.metrics for kept in result.epochs))} == {plan}
    folders = [job.output, *(job.output / "epochs" / str(kept.epoch) for kept in result.epochs[:-1])]
    assert [epsilon(ledger, delta) for ledger in map(read_ledger, folders) if ledger is not None] == [plan] * len(
        folders
    )
    assert [m["epsilon_executed"] for m in curve] == [planned_epsilon(job, t) for t in (1, 2, 3)]
    assert result.metrics["epsilon_executed"] == planned_epsilon(job, 3) < plan
    assert (
        result.metrics["gaussian_mu"] == gaussian_mu(result.ledger, delta) > gaussian_mu(result.ledger.executed, delta)
    )


SECRET = {"z0": 2.0, "reproducible_noise": None}


def planned_epsilon(job: TrialJob, epochs: int) -> float:
    """The ε of the job's mechanism over so many epochs, 4 steps each of 54 utterances."""
    of = {"micro_batches": 8, "steps_per_epoch": 4, "rate": 16 / 54, "single_example": False}
    return epsilon(planned_ledger(job.spec.edp, epochs=epochs, **of), job.spec.edp.delta)


@pytest.mark.slow
def test_on_a_public_corpus_a_stopped_trial_states_the_epsilon_of_its_epochs(corpus: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(training={"epochs": 6}, edp=SECRET), corpus, tmp_path / "out", public=True)
    (result,) = run_workers(stopped, 1, job, 3, True)
    assert result.ledger.not_executed == ()
    assert result.metrics["epsilon"] == result.metrics["epsilon_executed"] == planned_epsilon(job, 3)
    assert [m["epsilon"] for m in read_curve(job.output)] == [planned_epsilon(job, t) for t in (1, 2, 3)]


@pytest.mark.slow
def test_a_training_that_diverges_or_is_left_by_who_saw_figures_has_cost_its_plan(corpus: Path, tmp_path: Path) -> None:
    left = TrialJob(spec(training={"epochs": 6}, edp=SECRET), corpus, tmp_path / "left")
    assert run_workers(stopped, 1, left, 2, False) == ["enough"]
    wild = {"epochs": 6, "optimizer": "sgd", "learning_rate": 1e9}
    diverged = TrialJob(spec(training=wild, edp=SECRET), corpus, tmp_path / "diverged")
    assert "learning rate" in run_workers(trial, 1, diverged)[0]
    for job in (left, diverged):
        ledger = read_ledger(job.output)
        assert ledger is not None
        assert ledger.not_executed
        assert epsilon(ledger, job.spec.edp.delta) == planned_epsilon(job, 6)


@pytest.mark.slow
def test_a_trial_that_is_told_to_leave_goes_on_another_time_with_its_kept_epochs(
    corpus: Path, attack: Path, tmp_path: Path
) -> None:
    training = {"epochs": 4, "workers": 2}
    whole = TrialJob(spec(training=training), corpus, tmp_path / "whole", attack, keep=3)
    job = TrialJob(spec(training=training), corpus, tmp_path / "out", attack, keep=3)
    assert run_workers(stopped, 2, job, 2, False) == ["enough", "enough"]
    assert not (job.output / "model.pt").exists()
    resumed, expected = run_workers(trial, 2, job)[0], run_workers(trial, 2, whole)[0]
    assert [kept.epoch for kept in resumed.epochs] == [kept.epoch for kept in expected.epochs]
    assert [m["valid_mia_auc"] for m in read_curve(job.output)] == pytest.approx(
        [m["valid_mia_auc"] for m in read_curve(whole.output)], abs=1e-3
    )
