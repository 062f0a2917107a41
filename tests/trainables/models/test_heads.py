"""Heads on a frozen encoder: its states are what the encoder says, whitened; nothing else of it is trained or run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from edp.book import keep_book
from edp.scaling import layer_of_parameter
from edp.spec import UserError
from sweeps.frozen import ensure_states
from tests.edp.workers import run_workers
from tests.trainables.models.encoder_folders import make_encoder
from trainables.batch import PieceInputs, StateInputs
from trainables.batching import encode_utterances
from trainables.corpora import load_corpus
from trainables.encoded_corpus import EncodedCorpus
from trainables.encoding import encode
from trainables.job import TrialFailed, TrialJob, TrialResult
from trainables.models import JointModel, build_model
from trainables.models.frozen import encoder_digest, hidden_states, load_frozen
from trainables.models.pretrained import pretrained_folder
from trainables.spec import BERTSpec, CLCSpec, CorpusSpec, HeadSpec, TrialSpec
from trainables.states import BLOCK, NewStates, blocks, encoder_of, moments_file, served_states, take_encoder
from trainables.whitening import CONSTANT, Moments
from trainables.worker import run_trial

PUBLIC = CorpusSpec(name="health", utterances=400)
PRIVATE = {"name": "communication", "utterances": 120}
HEADS = {
    "softmax, shared types": HeadSpec(slots="softmax", shared_types=True, bio=True),
    "softmax": HeadSpec(slots="softmax"),
    "crf": HeadSpec(),
    "crf, shared types, bio": HeadSpec(shared_types=True, bio=True),
}


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder("bert", tmp_path_factory.mktemp("pretrained"))


def model_spec(folder: Path, **features: Any) -> BERTSpec:
    return BERTSpec.model_validate(
        {
            "pretrained": str(folder),
            "vocabulary": PUBLIC.model_dump(),
            "trainable": "heads",
            "head": {"slots": "softmax", "shared_types": True, "bio": True},
            "features": {"layers": "1+3", "public": [PUBLIC.model_dump()], **features},
        }
    )


@pytest.fixture(scope="module")
def folder(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoded corpus with the states of several trials."""
    place = tmp_path_factory.mktemp("corpus") / "private-0"
    spec = model_spec(encoder_folder)
    encode(load_corpus(CorpusSpec.model_validate(PRIVATE)), spec, place)
    models = [spec, model_spec(encoder_folder, layers="2", pieces="mean", sentence="first")]
    ensure_states([place], models, lambda line: None)
    return place


def build(spec: BERTSpec, corpus: EncodedCorpus) -> JointModel:
    return build_model(spec, corpus.labels, seed=0, state_sizes=corpus.state_sizes)


@pytest.mark.parametrize("pieces", ["first", "mean"])
def test_kept_states_are_the_encoders_own_in_half_precision(folder: Path, encoder_folder: Path, pieces: str) -> None:
    corpus, encoder = EncodedCorpus.open(folder), load_frozen(model_spec(encoder_folder))
    kept = np.load(folder / "states" / f"token_{pieces}_2.npy")
    sentences = np.load(folder / "states" / "sentence_mean_last.npy")
    assert kept.dtype == np.float16
    train = corpus.size("train")
    for index in (0, 3, train - 1):
        batch = corpus.batch("train", np.array([index]))
        assert isinstance(batch.inputs, PieceInputs)
        with torch.no_grad():
            output: Any = encoder(input_ids=batch.inputs.piece_bs, output_hidden_states=True)
        state_sh = output.hidden_states[2][0]
        first = int(corpus.lengths("train")[:index].sum())
        starts = [*batch.inputs.first_bt[0].tolist(), batch.inputs.piece_bs.shape[1] - 1]
        for place in range(int(batch.lengths_b)):
            word = state_sh[starts[place] : starts[place + 1]]
            expected = word[0] if pieces == "first" else word.mean(0)
            assert torch.allclose(torch.from_numpy(kept[first + place]).float(), expected, rtol=1e-3, atol=2e-3)
        mean = output.hidden_states[-1][0].mean(0)
        assert torch.allclose(torch.from_numpy(sentences[index]).float(), mean, rtol=1e-3, atol=2e-3)


def test_a_trial_reads_its_own_columns_of_what_a_sweep_keeps(folder: Path, encoder_folder: Path) -> None:
    names = {path.stem for path in (folder / "states").glob("*.npy")}
    tokens = {f"token_{pieces}_{layer}" for pieces in ("first", "mean") for layer in (1, 2, 3)}
    assert names == tokens | {"sentence_mean_last", "sentence_first_last", "read"}
    both = EncodedCorpus.open(folder).for_model(model_spec(encoder_folder, layers="1+2")).batch("train", np.arange(4))
    one = EncodedCorpus.open(folder).for_model(model_spec(encoder_folder, layers="2")).batch("train", np.arange(4))
    assert isinstance(both.inputs, StateInputs)
    assert isinstance(one.inputs, StateInputs)
    half = both.inputs.token_nd[:, 16:32] * np.sqrt(2)
    assert torch.allclose(half, one.inputs.token_nd[:, :16], atol=1e-5)
    assert torch.equal(both.inputs.token_nd[:, -1], torch.full((len(half),), CONSTANT))


def test_whitening_makes_the_public_corpus_uncorrelated_and_of_unit_length(folder: Path, encoder_folder: Path) -> None:
    spec = model_spec(encoder_folder)
    splits, features = load_corpus(PUBLIC), EncodedCorpus.open(folder).features()
    tokens = [u.tokens for part in (splits.train, splits.valid, splits.test) for u in part]
    batch = encode_utterances(tokens, features)
    (state_bth,) = hidden_states(load_frozen(spec), batch, ["token_first_3"])
    moments = Moments.load(moments_file(folder / "features", "token_first_3"))
    x_nh = moments.whitener(1.0)(state_bth[batch.mask_bt])
    width = x_nh.shape[1]
    assert torch.allclose(x_nh.square().sum(1).mean(), torch.tensor(1.0), atol=0.01)
    assert torch.allclose(x_nh.mean(0), torch.zeros(width), atol=0.01)
    real = moments.values_h > 0.1 * moments.values_h.mean()  # the ridge holds back what hardly varies
    variance_h = torch.cov(x_nh.t()).diagonal()[real] * width
    assert torch.allclose(variance_h, variance_h.mean().expand_as(variance_h), rtol=0.02)
    plain = moments.whitener(0.0)(state_bth[batch.mask_bt])
    ratio = torch.cov(plain.t()).trace() / moments.values_h.sum()
    assert torch.allclose(torch.linalg.eigvalsh(torch.cov(plain.t())).double() / ratio, moments.values_h, rtol=0.05)


def test_utterances_beyond_the_encoders_positions_are_read_as_far_as_they_fit(
    encoder_folder: Path, tmp_path: Path
) -> None:
    spec = model_spec(encoder_folder)
    splits = load_corpus(CorpusSpec.model_validate(PRIVATE))
    long = splits.train[0]
    splits.train.append(type(long)(long.tokens * 20, long.tags * 20, long.intent))
    corpus = encode(splits, spec, tmp_path / "long-0")
    ensure_states([corpus.folder], [spec], lambda line: None)
    last = np.array([corpus.size("train") - 1])
    plain, heads = corpus.batch("train", last), corpus.for_model(spec).batch("train", last)
    assert torch.equal(plain.lengths_b, heads.lengths_b)
    assert torch.equal(plain.mask_bt, heads.mask_bt)
    assert plain.tags_bt is not None
    assert heads.tags_bt is not None
    assert torch.equal(plain.tags_bt, heads.tags_bt)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_norms_and_sums_are_those_of_a_loop_also_when_a_batch_comes_again(
    folder: Path, encoder_folder: Path, head: HeadSpec
) -> None:
    spec = model_spec(encoder_folder).model_copy(update={"head": head})
    corpus = EncodedCorpus.open(folder).for_model(spec)
    net = build(spec, corpus).train()
    micro_batch_b = torch.tensor([0, 1, 2, 3, 4, 0, 2])
    indices = np.arange(len(micro_batch_b)) * 5
    batch = corpus.batch("train", indices)
    parameters, layer, names = layer_of_parameter(net)
    book = keep_book(net)
    for turn in range(2):  # the second time, what was kept of the batch is used
        with torch.no_grad():
            for parameter in parameters:
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(turn))
                parameter.copy_(0.3 * noise)
        squares_mk = torch.zeros(5, len(names))
        sums = [torch.zeros_like(p) for p in parameters]
        factor_m = torch.arange(1.0, 6)
        net.book = None
        for m in range(5):
            mine = corpus.batch("train", indices[(micro_batch_b == m).numpy()])
            for g, k, total in zip(torch.autograd.grad(net(mine).mean(), parameters), layer, sums, strict=True):
                squares_mk[m, k] += g.square().sum()
                total += factor_m[m] * g
        net.book = book
        with book.examples(micro_batch_b, 5):
            loss_b = net(batch)
        (loss_b / torch.bincount(micro_batch_b)[micro_batch_b]).sum().backward()
        assert torch.allclose(book.squares(), squares_mk, rtol=1e-4, atol=1e-6)
        found = [torch.empty_like(p) for p in parameters]
        book.write(factor_m, {id(p): x for p, x in zip(book.parameters, found, strict=True)})
        for one, other in zip(found, sums, strict=True):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)
    assert "rows" in batch.inputs.kept


def test_b_and_i_of_a_type_share_its_scores(folder: Path, encoder_folder: Path) -> None:
    spec = model_spec(encoder_folder)
    corpus = EncodedCorpus.open(folder).for_model(spec)
    net = build(spec, corpus)
    assert not any(bool(parameter.any()) for parameter in net.parameters()), "they begin as zero"
    torch.nn.init.normal_(net.get_submodule("slot_head").get_parameter("weight"))
    emissions_btk = net.outputs(corpus.batch("train", np.arange(6))).emissions_btk
    gap_btx = emissions_btk[:, :, 1::2] - emissions_btk[:, :, 2::2]  # of B-x and I-x: w_B - w_I, whatever x
    assert gap_btx.abs().max() > 0.1
    assert torch.allclose(gap_btx, gap_btx[:, :, :1].expand_as(gap_btx), atol=1e-4)


@pytest.mark.parametrize("slots", ["softmax", "crf"])
def test_what_bio_forbids_is_never_answered(folder: Path, encoder_folder: Path, slots: str) -> None:
    chosen: dict[str, Any] = {"slots": slots}
    broken = {}
    for bio in (True, False):
        spec = model_spec(encoder_folder).model_copy(update={"head": HeadSpec(bio=bio, **chosen)})
        corpus = EncodedCorpus.open(folder).for_model(spec)
        net = build(spec, corpus).eval()
        for number, parameter in enumerate(net.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.data = 30 * torch.randn(parameter.shape, generator=generator)
        answers = [
            tags for start in (0, 20) for tags in net.predict(corpus.batch("test", np.arange(start, start + 20))).tags()
        ]
        names = [["O", *(corpus.labels.tags[tag] for tag in tags)] for tags in answers]
        broken[bio] = sum(
            after[0] == "I" and before[2:] != after[2:] for row in names for before, after in pairwise(row)
        )
    assert broken[True] == 0
    assert broken[False] > 0, "the weights ask for it"


def test_certainty_of_a_softmax_is_its_probabilities(folder: Path, encoder_folder: Path) -> None:
    spec = model_spec(encoder_folder)
    corpus = EncodedCorpus.open(folder).for_model(spec)
    net = build(spec, corpus).eval()
    torch.nn.init.normal_(net.get_submodule("slot_head").get_parameter("weight"))
    batch = corpus.batch("valid", np.arange(5))
    found = net.predict(batch)
    assert found.loss_b is not None
    assert torch.allclose(found.slot_marginals_btk.sum(2), batch.mask_bt.float(), atol=1e-5)
    assert torch.allclose(found.loss_b.float(), net.loss(batch), rtol=1e-4)


def trial_spec(model: BERTSpec, **changes: Any) -> TrialSpec:
    return TrialSpec.model_validate(
        {
            "corpus": PRIVATE,
            "shadow": {"corpus": {"name": "video", "utterances": 60}},
            "model": model.model_dump(),
            "training": {
                "method": "dpsgd",
                "epochs": 20,
                "batch_size": "full",
                "workers": 1,
                "learning_rate": 30,
                "optimizer": "momentum",
                "validate_every": 8,
                **changes,
            },
            "edp": {"z0": 0.01, "alpha": "none", "reproducible_noise": 1},
        }
    )


def trial(rank: int, world: int, job: TrialJob) -> tuple[TrialResult | str | None, dict[int, float]]:
    told: dict[int, float] = {}
    try:
        return run_trial(job, lambda epoch, metrics: told.update({epoch: metrics["train_loss"]})), told
    except TrialFailed as error:
        return str(error), told


def test_a_trial_of_full_batches_learns_and_reports_every_so_many_epochs(
    folder: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    job = TrialJob(trial_spec(model_spec(encoder_folder)), folder, tmp_path / "one")
    ((result, told),) = run_workers(trial, 1, job)
    assert isinstance(result, TrialResult)
    assert list(told) == [8, 16, 20]
    assert result.ledger.steps == 20, "an epoch is one step"
    assert told[20] < 0.8 * told[8]
    saved = torch.load(tmp_path / "one" / "model.pt", weights_only=True)["state_dict"]
    assert set(saved) == {"slot_head.weight", "intent_head.weight"}, "the encoder is public, and stays where it is"
    ((shared, _), _) = run_workers(
        trial, 2, TrialJob(trial_spec(model_spec(encoder_folder), workers=2), folder, tmp_path / "two")
    )
    assert isinstance(shared, TrialResult)
    two = torch.load(tmp_path / "two" / "model.pt", weights_only=True)["state_dict"]
    for name, tensor in saved.items():
        assert torch.allclose(two[name], tensor, rtol=0.05, atol=0.05 * float(tensor.abs().max())), name


def test_served_heads_answer_as_the_trained_ones_and_only_on_the_same_encoder(
    folder: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    spec = model_spec(encoder_folder)
    corpus = EncodedCorpus.open(folder)
    states = served_states(spec, folder)  # its features/, and the encoder that the spec names
    indices = np.arange(6)
    batch = encode_utterances([u.tokens for u in corpus.utterances("test", indices)], corpus.features())
    served, kept = states(batch).inputs, corpus.for_model(spec).batch("test", indices).inputs
    assert isinstance(served, StateInputs)
    assert isinstance(kept, StateInputs)
    assert torch.allclose(served.token_nd, kept.token_nd, atol=5e-3)
    assert torch.allclose(served.sentence_bd, kept.sentence_bd, atol=5e-3)
    assert encoder_of(folder / "features")["digest"] == encoder_digest(load_frozen(spec))
    other = make_encoder("bert", tmp_path / "other", type_vocab_size=3)
    with pytest.raises(UserError, match=r"its weights have SHA-256 .* allowed: the same encoder, or a model"):
        served_states(spec.model_copy(update={"pretrained": str(other)}), folder)
    take_encoder(spec, tmp_path / "bundle" / "encoder")
    (tmp_path / "bundle" / "features").symlink_to(folder / "features")
    gone = spec.model_copy(update={"pretrained": str(tmp_path / "gone")})
    assert isinstance(served_states(gone, tmp_path / "bundle"), NewStates), "it was taken along"
    pretrained_folder.cache_clear()


def test_blocks_hold_every_utterance_once() -> None:
    found = blocks({"train": 2 * BLOCK + 1, "valid": 3})
    assert found == [
        ("train", 0, BLOCK),
        ("train", BLOCK, 2 * BLOCK),
        ("train", 2 * BLOCK, 2 * BLOCK + 1),
        ("valid", 0, 3),
    ]


def test_a_corpus_too_large_for_memory_gives_the_same_batches(
    folder: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, indices = model_spec(encoder_folder), np.array([4, 0, 9])
    small = EncodedCorpus.open(folder).for_model(spec)
    monkeypatch.setattr("trainables.states._IN_MEMORY", 0)
    large = EncodedCorpus.open(folder).for_model(spec)
    assert small.states_in_memory
    assert not large.states_in_memory
    one, other = small.batch("train", indices).inputs, large.batch("train", indices).inputs
    assert isinstance(one, StateInputs)
    assert isinstance(other, StateInputs)
    assert torch.allclose(one.token_nd, other.token_nd, atol=1e-5)


def test_parts_of_a_corpus_keep_their_states(folder: Path, encoder_folder: Path) -> None:
    corpus = EncodedCorpus.open(folder).for_model(model_spec(encoder_folder))
    joined, chosen = corpus.with_valid_in_train(), corpus.with_train({"test": np.array([5, 2])})
    pairs = [
        (joined.batch("train", np.array([0])), corpus.batch("valid", np.array([0]))),
        (joined.batch("train", np.array([corpus.size("valid")])), corpus.batch("train", np.array([0]))),
        (chosen.batch("train", np.array([1])), corpus.batch("test", np.array([2]))),
    ]
    for one, other in pairs:
        assert isinstance(one.inputs, StateInputs)
        assert isinstance(other.inputs, StateInputs)
        assert torch.equal(one.inputs.token_nd, other.inputs.token_nd)
        assert torch.equal(one.inputs.sentence_bd, other.inputs.sentence_bd)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainable": "all"}, r"model\.features has no meaning with model\.trainable = all; allowed: null, or"),
        ({"pretrained": None}, r"states of a random start say nothing; allowed: "),
        ({"features": {"layers": "2+2", "public": [{"name": "health"}]}}, r"names a layer twice; allowed: each once"),
        ({"features": {"layers": "2,4", "public": [{"name": "health"}]}}, r"should match pattern"),
        ({"features": {"public": []}}, r"at least 1 item"),
    ],
)
def test_settings_that_do_not_fit_are_refused(encoder_folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        BERTSpec.model_validate(model_spec(encoder_folder).model_dump() | changes)


def test_the_private_corpus_gives_no_moments(encoder_folder: Path) -> None:
    model = model_spec(encoder_folder, public=[PRIVATE])
    with pytest.raises(ValidationError, match=r"model\.features\.public\.0 = communication: .*must not be the private"):
        trial_spec(model)


def test_a_layer_that_the_encoder_lacks_is_named(encoder_folder: Path) -> None:
    with pytest.raises(
        UserError, match=r"model\.features\.layers = 2\+9: .* has 3 layers; allowed: numbers from 0 to 3"
    ):
        load_frozen(model_spec(encoder_folder, layers="2+9"))


def test_other_models_take_the_same_heads(folder: Path) -> None:
    assert BERTSpec(vocabulary=PUBLIC).head == HeadSpec()
    assert CLCSpec.model_fields["head"].default == HeadSpec(slots="crf", shared_types=False, bio=False)
