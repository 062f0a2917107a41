"""A trial in its worker processes: the same mechanism whatever the hardware, and a clear end where it cannot go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from edp.accounting.epsilon import epsilon
from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease, Ledger
from edp.noise.gaussian import secret_key
from tests.support.encoder_folders import make_encoder
from tests.support.tiny import SPEC, corpus, run, spec, trial, weights
from tests.support.workers import run_workers
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.token_features import Batch
from trainables.models import JointModel, build_model
from trainables.records.epochs import read_curve
from trainables.records.job import TrialJob, TrialResult
from trainables.training.checkpoint import discard_checkpoint
from trainables.training.scales import layer_scales

__all__ = ["corpus"]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
def test_micro_batches_of_one_give_the_same_weights_on_every_number_of_workers(
    sampling: str, corpus: Path, tmp_path: Path
) -> None:
    for world in (1, 2, 8):
        changes = {
            "training": {"method": "dpsgd", "workers": world, "epochs": 1},
            "edp": {"sampling": sampling, "z0": 0},
        }
        run(corpus, tmp_path / str(world), world, **changes)
    for world in (2, 8):
        torch.testing.assert_close(weights(tmp_path / str(world)), weights(tmp_path / "1"), rtol=0, atol=2e-4)


@pytest.mark.slow
def test_8x1_2x4_and_1x8_micro_batches_give_the_same_weights_ledger_and_epsilon(corpus: Path, tmp_path: Path) -> None:
    results = {}
    for world in (1, 2, 8):
        results[world] = run(corpus, tmp_path / str(world), world, training={"workers": world})[0]
    for world in (2, 8):
        torch.testing.assert_close(weights(tmp_path / str(world)), weights(tmp_path / "1"), rtol=0, atol=2e-4)
        assert results[world].ledger == results[1].ledger
        assert results[world].metrics["epsilon"] == results[1].metrics["epsilon"]
        assert results[world].metrics["ser"] == pytest.approx(results[1].metrics["ser"], abs=0.05)


@pytest.mark.slow
def test_plain_sgd_is_the_same_on_one_and_two_workers_and_guarantees_nothing(corpus: Path, tmp_path: Path) -> None:
    changes = {"training": {"method": "sgd"}, "model": {"dropout": 0.0}}
    for world in (1, 2):
        (result, *others) = run(corpus, tmp_path / str(world), world, **changes)
        assert others == [None] * (world - 1)
        assert result.ledger == Ledger(private=False)
        assert result.metrics["epsilon"] == float("inf")
    torch.testing.assert_close(weights(tmp_path / "1"), weights(tmp_path / "2"), rtol=0, atol=2e-4)


@pytest.mark.slow
def test_a_full_batch_is_as_large_as_the_corpus_and_so_is_the_n_of_dpsgd(corpus: Path, tmp_path: Path) -> None:
    # 51 utterances: four workers have 12, 13, 13 and 13 of them.
    training = {"method": "dpsgd", "batch_size": "full"}
    results = {w: run(corpus, tmp_path / str(w), w, training=training | {"workers": w})[0] for w in (1, 4)}
    same = run(corpus, tmp_path / "51", 1, training=training | {"batch_size": 51})[0]
    assert results[1].ledger == results[4].ledger == same.ledger
    assert {(e.steps, e.mechanism.N, e.mechanism.rate) for e in same.ledger.entries} == {(1, 51, 1.0)}
    assert all(entry.mechanism.single_example for entry in same.ledger.entries)
    torch.testing.assert_close(weights(tmp_path / "4"), weights(tmp_path / "1"), rtol=0, atol=2e-4)
    torch.testing.assert_close(weights(tmp_path / "51"), weights(tmp_path / "1"), rtol=0, atol=0)


@pytest.mark.slow
def test_with_the_validation_split_the_rate_is_that_of_both_and_nothing_is_validated(
    corpus: Path, tmp_path: Path
) -> None:
    both = EncodedCorpus.open(corpus).with_valid_in_train().size("train")
    assert both > 51
    poisson = spec(training={"method": "dpsgd", "batch_size": 16}, edp={"sampling": "poisson"})
    (result,) = run_workers(trial, 1, TrialJob(poisson, corpus, tmp_path / "out", with_valid=True))
    assert all(entry.mechanism.rate == pytest.approx(16 / both) for entry in result.ledger.entries)
    assert not any(name.startswith("valid_") for name in result.metrics)


@pytest.mark.slow
def test_a_batch_of_more_utterances_than_there_are_is_refused_where_the_step_is_divided_by_it(
    corpus: Path, tmp_path: Path
) -> None:
    (reason,) = run(corpus, tmp_path / "out", 1, training={"method": "dpsgd", "batch_size": 64})
    assert reason.startswith("training.batch_size = 64: the corpus has 51 utterances to train on")
    assert reason.endswith("allowed: at most that many, or full with edp.sampling=shuffle")


@pytest.mark.slow
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
    assert entry.steps == 26
    assert entry.mechanism.single_example
    assert (entry.mechanism.N, entry.mechanism.rate) == (2, pytest.approx(2 / 51))


@pytest.mark.slow
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
        scales, release = layer_scales(
            model, encoded, trial_spec, torch.device("cpu"), secret_key(), Ledger(), lambda _: None
        )
        assert scales is not None
        found.append((scales, epsilon(Ledger(alpha_release=release), 1e-5)))
    return found


@pytest.mark.slow
def test_secret_votes_differ_between_runs_and_public_scales_do_not(corpus: Path) -> None:
    (first,), (second,) = (run_workers(_scales, 1, corpus) for _ in range(2))
    assert not torch.equal(first[0][0], second[0][0])
    assert torch.equal(first[1][0], second[1][0])
    assert first[0][1] == second[0][1] > 0 == first[1][1]
    for scales, _ in (*first, *second):
        assert scales.max() == 1
        assert scales.min() > 0


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_learning_rate_out_of_all_bounds_ends_the_trial_with_the_reason(corpus: Path, tmp_path: Path) -> None:
    for method in ("sgd", "edp"):
        found = run(corpus, tmp_path / method, 2, training={"method": method, "workers": 2, "learning_rate": 1e30})
        for reason in found:
            assert isinstance(reason, str), reason
            assert "the learning rate may be too high" in reason
        assert not (tmp_path / method / "model.pt").exists()


def with_a_bad_utterance(rank: int, world: int, job: TrialJob) -> TrialResult | str | None:
    """The first utterance of every batch has an infinite loss, whose gradient is NaN."""
    plain = JointModel.forward

    def spoilt(self: JointModel, batch: Batch) -> torch.Tensor:
        loss_b = plain(self, batch)
        return loss_b * torch.ones_like(loss_b).index_fill(0, torch.tensor([0]), torch.inf) if self.training else loss_b

    JointModel.forward = spoilt
    return trial(rank, world, job)


@pytest.mark.slow
def test_an_utterance_of_infinite_loss_ends_plain_sgd_and_is_dropped_from_private_training(
    corpus: Path, tmp_path: Path
) -> None:
    for method in ("sgd", "edp", "dpsgd"):
        training = {"method": method, "workers": 2, "epochs": 2}
        job = TrialJob(spec(training=training), corpus, tmp_path / method)
        found = run_workers(with_a_bad_utterance, 2, job)
        if method == "sgd":
            assert all("the learning rate may be too high" in reason for reason in found)
            continue
        assert isinstance(found[0], TrialResult), found
        steps = found[0].ledger.steps
        # The last step of each of two epochs has three utterances, all of them one worker's.
        assert found[0].metrics["dropped_gradients"] >= 2 * (steps - 2) + 2, "one of each worker in each full step"
        curve = read_curve(tmp_path / method)
        assert [epoch["dropped_gradients"] for epoch in curve] == [
            found[0].metrics["dropped_gradients"] / 2,
            found[0].metrics["dropped_gradients"],
        ]
        assert all(0 < epoch["train_loss"] < float("inf") for epoch in curve)
        assert all(0 < epoch["system/worker_cpu_percent"] < 1e5 for epoch in curve)
        assert all(10 < epoch["system/worker_memory_mib"] < 1e6 for epoch in curve)


@pytest.mark.slow
def test_what_rank_0_leaves_behind_holds_no_seed_of_the_noise(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", 1, edp={"reproducible_noise": None})
    discard_checkpoint(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "model.pt",
        "ledger.json",
        "audit.json",
        "audit_scores.npz",
        "curve.json",
        "attack_features.npz",
    }
    ledger = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert "seed" not in json.dumps(ledger)
    assert not ledger["entries"][0]["mechanism"]["replayable"]


def test_the_learning_rate_decays_to_its_last_epoch_s_share() -> None:
    training = spec(training={"epochs": 4, "learning_rate": 1e-2, "learning_rate_decay": "linear"}).training
    assert [training.learning_rate_in(epoch) for epoch in range(4)] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])
    assert spec(training={"epochs": 4, "learning_rate": 1e-2}).training.learning_rate_in(3) == 1e-2


@pytest.mark.slow
def test_a_trial_of_another_architecture_starts_from_its_pretrained_layers(tmp_path: Path) -> None:
    folder = make_encoder("roberta", tmp_path / "pretrained")
    roberta = {"kind": "bert", "pretrained": str(folder), "layers": 2, "vocabulary": {"name": "health"}}
    training = SPEC["training"] | {"workers": 2, "learning_rate": 1e-3}
    one = TrialSpec.model_validate({**SPEC, "model": roberta, "training": training, "edp": {"C": 0.5, "z0": 0.01}})
    encode(load_corpus(one.corpus), one.model, tmp_path / "encoded")
    result = run_workers(trial, 2, TrialJob(one, tmp_path / "encoded", tmp_path / "out"))[0]
    assert isinstance(result, TrialResult), result
    assert result.tags["pretrained_source"] == str(folder)
    assert result.ledger.steps == 8
    assert 0 < result.metrics["epsilon"] < float("inf")
    curve = json.loads((tmp_path / "out" / "curve.json").read_text())
    losses = [epoch["train_loss"] for epoch in curve]
    assert losses[-1] < losses[0]
