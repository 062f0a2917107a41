"""A trial in its worker processes: the same mechanism whatever the hardware, and a clear end where it cannot go on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edp.epsilon import epsilon
from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease, Ledger
from edp.noise import stream
from tests.edp.workers import run_workers
from trainables.attacks.shadow import fit_attack, save_attack
from trainables.corpora import load_corpus
from trainables.encoding import EncodedCorpus, encode
from trainables.epochs import read_curve
from trainables.job import Stop, TrialFailed, TrialJob, TrialResult
from trainables.ledger_file import read_ledger
from trainables.models import build_model
from trainables.scales import layer_scales
from trainables.spec import TrialSpec
from trainables.worker import run_trial

SPEC: dict[str, Any] = {
    "corpus": {"name": "communication", "utterances": 120},
    "shadow": {"corpus": {"name": "video", "utterances": 120}},
    "model": {
        "kind": "clc",
        "embeddings": {"corpus": {"name": "health", "utterances": 60}, "epochs": 1},
        "embedding_size": 12,
        "hidden_size": 10,
        "layers": 1,
        "char_filters": 6,
        "dropout": 0.2,
    },
    "training": {"epochs": 2, "batch_size": 16, "micro_batches": 8, "workers": 1, "learning_rate": 1e-2},
    "edp": {"C": 0.5, "z0": 0.1, "reproducible_noise": 3},
}


def spec(**changes: dict[str, Any]) -> TrialSpec:
    return TrialSpec.model_validate({k: v | changes.get(k, {}) for k, v in SPEC.items()})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "encoded"
    encode(load_corpus(spec().corpus), spec().model, folder)
    return folder


def trial(rank: int, world: int, job: TrialJob) -> TrialResult | str | None:
    try:
        return run_trial(job, lambda epoch, metrics: None)
    except TrialFailed as error:
        return str(error)


def run(corpus: Path, output: Path, world: int, **changes: dict[str, Any]) -> list[Any]:
    return run_workers(trial, world, TrialJob(spec(**changes), corpus, output))


def weights(output: Path) -> torch.Tensor:
    saved = torch.load(output / "model.pt", weights_only=True)["state_dict"]
    return torch.cat([tensor.flatten().float() for tensor in saved.values()])


@pytest.mark.parametrize("sub_chunks", [1, 2])
def test_8x1_2x4_and_1x8_micro_batches_give_the_same_weights_ledger_and_epsilon(
    sub_chunks: int, corpus: Path, tmp_path: Path
) -> None:
    results = {}
    for world in (1, 2, 8):
        training = {"workers": world, "sub_chunks": sub_chunks}
        results[world] = run(corpus, tmp_path / str(world), world, training=training)[0]
    for world in (2, 8):
        torch.testing.assert_close(weights(tmp_path / str(world)), weights(tmp_path / "1"), rtol=0, atol=2e-4)
        assert results[world].ledger == results[1].ledger
        assert results[world].metrics["epsilon"] == results[1].metrics["epsilon"]
        assert results[world].metrics["ser"] == pytest.approx(results[1].metrics["ser"], abs=0.05)


def test_plain_sgd_is_the_same_on_one_and_two_workers_and_guarantees_nothing(corpus: Path, tmp_path: Path) -> None:
    changes = {"training": {"method": "sgd"}, "model": {"dropout": 0.0}}
    for world in (1, 2):
        (result, *others) = run(corpus, tmp_path / str(world), world, **changes)
        assert others == [None] * (world - 1)
        assert result.ledger == Ledger(private=False)
        assert result.metrics["epsilon"] == float("inf")
    torch.testing.assert_close(weights(tmp_path / "1"), weights(tmp_path / "2"), rtol=0, atol=2e-4)


def test_dpsgd_clips_every_example_and_halves_the_sensitivity(corpus: Path, tmp_path: Path) -> None:
    result = run(corpus, tmp_path / "out", 2, training={"method": "dpsgd", "workers": 2})[0]
    mechanisms = {entry.mechanism for entry in result.ledger.entries}
    assert {m.N for m in mechanisms} == {16}
    assert all(m.single_example for m in mechanisms)


def test_dpsgd_takes_any_number_of_poisson_drawn_examples_also_none_on_a_worker(corpus: Path, tmp_path: Path) -> None:
    # Two utterances a step are expected, so one of two workers has none in most of the steps.
    training = {"method": "dpsgd", "batch_size": 2, "micro_batches": 2, "epochs": 1, "learning_rate": 1e-3}
    results = {}
    for world in (1, 2):
        training["workers"] = world
        results[world] = run(corpus, tmp_path / str(world), world, training=training, edp={"sampling": "poisson"})[0]
    torch.testing.assert_close(weights(tmp_path / "2"), weights(tmp_path / "1"), rtol=0, atol=2e-4)
    assert results[1].ledger == results[2].ledger
    (entry,) = results[1].ledger.entries
    assert entry.steps == 27
    assert entry.mechanism.single_example
    assert (entry.mechanism.N, entry.mechanism.rate) == (2, pytest.approx(2 / 54))


@pytest.mark.parametrize(("alpha", "unit"), [("public", "example"), ("private", "example"), ("private", "micro_batch")])
def test_layer_scales_from_gradients_are_the_same_on_one_and_two_workers(
    alpha: str, unit: str, corpus: Path, tmp_path: Path
) -> None:
    for world in (1, 2):
        edp = {"alpha": alpha, "unit": unit, "alpha_noise": "per_layer"}
        result = run(corpus, tmp_path / str(world), world, training={"workers": world, "epochs": 1}, edp=edp)[0]
        assert result.ledger.alpha_release == (AlphaRelease(z=PRIVATE_ALPHA_Z) if alpha == "private" else None)
        assert {entry.mechanism.max_alpha for entry in result.ledger.entries} == {1.0}
    torch.testing.assert_close(weights(tmp_path / "2"), weights(tmp_path / "1"), rtol=0, atol=2e-4)


def _scales(rank: int, world: int, corpus: Path) -> list[tuple[torch.Tensor, float]]:
    """The scales found privately and publicly, and ε of each."""
    found = []
    encoded = EncodedCorpus.open(corpus)
    for alpha in ("private", "public"):
        trial_spec = spec(edp={"alpha": alpha, "reproducible_noise": None})
        model = build_model(trial_spec.model, encoded.labels, seed=0)
        scales, ledger = layer_scales(model, encoded, trial_spec, torch.device("cpu"))
        assert scales is not None
        found.append((scales, epsilon(ledger, 1e-5)))
    return found


def test_secret_votes_differ_between_runs_and_public_scales_do_not(corpus: Path) -> None:
    (first,), (second,) = (run_workers(_scales, 1, corpus) for _ in range(2))
    assert not torch.equal(first[0][0], second[0][0])
    assert torch.equal(first[1][0], second[1][0])
    assert first[0][1] == second[0][1] > 0 == first[1][1]
    for scales, _ in (*first, *second):
        assert scales.max() == 1
        assert scales.min() > 0


def test_poisson_steps_run_also_when_micro_batches_are_empty(corpus: Path, tmp_path: Path) -> None:
    # Two utterances a step are expected in eight micro-batches: most of them are empty.
    result = run(
        corpus,
        tmp_path / "out",
        2,
        training={"batch_size": 8, "workers": 2, "epochs": 1},
        edp={"sampling": "poisson", "z0": 5.0, "reproducible_noise": None},
    )[0]
    assert result.ledger.steps == 7
    assert 0 < result.metrics["epsilon"] < float("inf")


def test_a_learning_rate_out_of_all_bounds_ends_the_trial_with_the_reason(corpus: Path, tmp_path: Path) -> None:
    for method in ("sgd", "edp"):
        found = run(corpus, tmp_path / method, 2, training={"method": method, "workers": 2, "learning_rate": 1e30})
        for reason in found:
            assert isinstance(reason, str), reason
            assert "the learning rate may be too high" in reason
        assert not (tmp_path / method / "model.pt").exists()


def test_what_rank_0_leaves_behind_holds_no_seed_of_the_noise(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", 1, edp={"reproducible_noise": None})
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.pt",
        "ledger.json",
        "curve.json",
        "attack_features.npz",
    }
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert "seed" not in json.dumps(ledger)
    assert not ledger["entries"][0]["mechanism"]["replayable"]


class _Killed(Exception):
    """Ends a worker in the middle of a trial, as a signal would."""


def interrupted(rank: int, world: int, job: TrialJob, after: int) -> None:
    def report(epoch: int, metrics: dict[str, float]) -> None:
        if epoch == after:
            raise _Killed

    with pytest.raises(_Killed):
        run_trial(job, report)


def test_the_learning_rate_decays_to_its_last_epoch_s_share() -> None:
    training = spec(training={"epochs": 4, "learning_rate": 1e-2, "learning_rate_decay": "linear"}).training
    assert [training.learning_rate_in(epoch) for epoch in range(4)] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])
    assert spec(training={"epochs": 4, "learning_rate": 1e-2}).training.learning_rate_in(3) == 1e-2


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
    assert not (tmp_path / "cut" / "checkpoint.pt").exists()


def epochs_run(rank: int, world: int, job: TrialJob) -> tuple[list[int], TrialResult | None]:
    seen: list[int] = []
    return seen, run_trial(job, lambda epoch, metrics: seen.append(epoch))


def test_a_checkpoint_of_another_configuration_is_not_taken_for_ones_own(corpus: Path, tmp_path: Path) -> None:
    one = TrialJob(spec(training={"epochs": 2}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, one, 1)
    other = TrialJob(spec(training={"epochs": 2}, edp={"C": 0.25}), corpus, tmp_path / "out")
    seen, result = run_workers(epochs_run, 1, other)[0]
    assert seen == [1, 2]
    assert {entry.mechanism.C for entry in result.ledger.entries} == {0.25}


def test_a_checkpoint_holds_no_key_and_no_generator(corpus: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(edp={"reproducible_noise": None}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, job, 1)
    saved = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)
    assert set(saved) == {"spec", "step", "seconds", "ledger", "alpha", "model", "optimizer"}


KNOWN_KEY = bytes(range(7, 39))


def with_a_known_key(rank: int, world: int, job: TrialJob, after: int) -> None:
    """As `interrupted`, with a key that the test knows in place of the operating system's."""
    import edp.hook

    edp.hook.secret_key = lambda: KNOWN_KEY
    interrupted(rank, world, job, after)


def test_neither_key_nor_generator_state_is_in_anything_that_a_run_leaves_behind(corpus: Path, tmp_path: Path) -> None:
    """Checkpoint, ledger and model of a run whose key is known are searched for the key and for what comes of it."""
    job = TrialJob(spec(edp={"reproducible_noise": None}), corpus, tmp_path / "out")
    run_workers(with_a_known_key, 1, job, 1)
    run_workers(trial, 1, job)
    run_workers(with_a_known_key, 1, TrialJob(job.spec, corpus, tmp_path / "cut"), 1)
    noise = stream(KNOWN_KEY, 0, 0)
    state = noise.generator(torch.device("cpu")).get_state().numpy().tobytes()
    secrets = [
        form
        for key in (KNOWN_KEY, noise.key())
        for form in (key, key.hex().encode(), base64.b64encode(key), str(list(key)).encode())
    ]
    secrets.append(state[24 : 24 + 64])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"checkpoint.pt", "model.pt", "ledger.json"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret in content], path


def test_a_run_that_stopped_early_has_a_ledger_of_the_epochs_that_it_ran(corpus: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(training={"epochs": 5}), corpus, tmp_path / "out")
    run_workers(interrupted, 1, job, 2)
    ledger = read_ledger(tmp_path / "out")
    assert ledger is not None
    assert [(entry.epoch, entry.steps) for entry in ledger.entries] == [(0, 4), (1, 4)]
    saved = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)
    assert Ledger.model_validate_json(saved["ledger"]) == ledger


@pytest.fixture(scope="module")
def attack(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attack that was fitted to the answers of a model without privacy."""
    folder = tmp_path_factory.mktemp("attack")
    run(corpus, folder, 1, training={"method": "sgd", "epochs": 1})
    with np.load(folder / "attack_features.npz") as features:
        save_attack(fit_attack(features["members"], features["non_members"]), folder / "attack.json")
    return folder / "attack.json"


def stopped(rank: int, world: int, job: TrialJob, after: int, measure: bool) -> TrialResult | str | None:
    try:
        # Rank 0 alone knows.
        return run_trial(job, lambda epoch, _: Stop("enough", measure) if (rank, epoch) == (0, after) else None)
    except TrialFailed as error:
        return str(error)


def test_kept_epochs_are_the_models_that_so_many_epochs_train(corpus: Path, attack: Path, tmp_path: Path) -> None:
    training = {"epochs": 4, "workers": 2}
    job = TrialJob(spec(training=training), corpus, tmp_path / "out", attack, keep=3)
    result = run_workers(trial, 2, job)[0]
    assert len(result.epochs) == 3
    assert result.epochs[-1].epoch == 4
    assert result.epochs[-1].metrics == result.metrics
    assert len(read_curve(job.output)) == 4
    for kept in result.epochs[:-1]:
        folder = job.output / "epochs" / str(kept.epoch)
        alone = TrialJob(spec(training=training | {"epochs": kept.epoch}), corpus, tmp_path / str(kept.epoch), attack)
        (other, _) = run_workers(trial, 2, alone)
        torch.testing.assert_close(weights(folder), weights(alone.output), rtol=0, atol=1e-6)
        assert set(kept.metrics) == set(other.metrics)
        for name, value in kept.metrics.items():
            assert name.endswith(("_seconds", "_per_epoch")) or value == pytest.approx(other.metrics[name], abs=1e-3)
        assert read_ledger(folder) == other.ledger == result.ledger.until(kept.epoch)
    assert {path.name for path in (job.output / "epochs").iterdir()} == {str(kept.epoch) for kept in result.epochs[:-1]}


def test_a_trial_that_is_stopped_is_measured_where_it_stands(corpus: Path, attack: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(training={"epochs": 6, "workers": 2}), corpus, tmp_path / "out", attack, keep=2)
    result, other = run_workers(stopped, 2, job, 3, True)
    assert other is None
    assert result.stopped == "enough"
    assert result.epochs[-1].epoch == 3
    assert {entry.epoch for entry in result.ledger.entries} == {0, 1, 2}
    assert result.metrics["epsilon"] == epsilon(result.ledger, job.spec.edp.delta)
    assert not (job.output / "checkpoint.pt").exists()


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


def test_a_bert_trial_runs_from_a_random_start_and_says_so(tmp_path: Path) -> None:
    bert = {
        "kind": "bert",
        "pretrained": None,
        "vocabulary": {"name": "health", "utterances": 60},
        "hidden_size": 12,
        "layers": 1,
        "heads": 2,
    }
    one = TrialSpec.model_validate({**SPEC, "model": bert, "training": SPEC["training"] | {"workers": 2}})
    encode(load_corpus(one.corpus), one.model, tmp_path / "encoded")
    result = run_workers(trial, 2, TrialJob(one, tmp_path / "encoded", tmp_path / "out"))[0]
    assert isinstance(result, TrialResult), result
    assert "random start" in result.tags["pretrained_source"]
    assert result.ledger.steps == 8
