"""Train an encoder on public corpora, without privacy, for `model.pretrained` of private recipes.

    pip install 'edp-sweeps[pretraining]'
    python examples/pretrain_encoder.py runs/encoders/public_minilm

trains MiniLM on eight public corpora, in half an hour on a CPU. This goes on with two more:

    python examples/pretrain_encoder.py runs/encoders/public_for_snips --start runs/encoders/public_minilm \
        --corpora atis nlu_eval --replay sgd fb_multilingual mit_restaurant mit_movie mit_movie_trivia restaurant8k \
        clinc150 banking77 --steps 1200 --batch-size 32 --learning-rate 1.5e-4

`supervised` learns the slots and intents of each corpus with heads of its own, and with scores of the labels' names
that all corpora share. `masked` guesses masked sub-words. All layers but the embeddings are trained. The same command
goes on from its last checkpoint. The folder also names the corpora, and holds a hash of each utterance: a private
corpus that the encoder has seen is refused.

Shapes: b utterances, s sub-words, t tokens, n tokens without padding, m masked sub-words, h hidden, x labels.
"""

import argparse
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import get_last_checkpoint

from edp.spec import UserError
from trainables import CorpusSpec, Utterance, load_corpus
from trainables.config.keys import cache_key
from trainables.corpora import corpus_digest
from trainables.corpora.labels import Labels
from trainables.corpora.overlap import ABOUT, HASHES, corpora_seen, hashes_in, hashes_of
from trainables.features.compute_states import encoder_digest
from trainables.features.device import in_bfloat16
from trainables.features.encoder import fills_gaps, mean_state
from trainables.features.pretrained import pretrained_encoder, pretrained_pieces
from trainables.features.token_features import Batch, make_batch, make_table
from trainables.features.word_pieces import WordPieces
from trainables.training.public_heads import NAMES, TAG_KINDS, name_vectors, readable

PUBLIC = ("sgd", "fb_multilingual", "mit_restaurant", "mit_movie", "mit_movie_trivia", "restaurant8k")
PUBLIC += ("clinc150", "banking77")
IGNORED = -1  # label of tokens and utterances whose corpus has no labels of that kind
INTENT_WEIGHT, NAME_SIZE = 0.4, 192
# Share of sub-words to guess, and the shares of these that a mask or a random one replaces (Devlin et al. 2019).
LEFT_OUT, MASKED, RANDOM = 0.15, 0.8, 0.1
HEADS = 10.0  # times the encoder's learning rate: heads start at random

Example = tuple[int, Utterance]  # the number of a corpus, and an utterance of it


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train an encoder on public corpora.")
    add = parser.add_argument
    add("output", type=Path, help="folder to make")
    add("--start", default="minilm", help="encoder to start from: minilm, a folder, or a name on the hub")
    add("--corpora", nargs="+", default=PUBLIC, metavar="NAME[=FILE]", help="public corpora to train on")
    add("--replay", nargs="+", default=[], metavar="NAME[=FILE]", help="public corpora to train on in part")
    add("--replayed", type=int, default=5000, help="number of utterances of --replay, drawn once")
    add("--objective", choices=["supervised", "masked"], default="supervised")
    add("--slotless", type=float, default=0.1, help="share of utterances without slots to keep, in corpora with slots")
    add("--steps", type=int, default=2000)
    add("--batch-size", type=int, default=64)
    add("--learning-rate", type=float, default=2e-4, help="highest rate of the encoder; that of the heads is ten times")
    add("--warm-up", type=int, default=150, help="steps in which the rate rises, before it falls to 0")
    add("--dropout", type=float, default=0.1)
    add("--seed", type=int, default=0)
    add("--report-to", choices=["none", "mlflow"], default="none", help="where the Trainer sends the loss")
    return parser.parse_args(words)


def main(words: list[str]) -> None:
    """Train, and write the encoder's folder."""
    args = arguments(words)
    if args.output.exists():
        raise UserError(f"output = {args.output}: it is there already; allowed: a new folder")
    folder, pieces, encoder = start_of(args.start, args.dropout)
    earlier = corpora_seen(folder)
    earlier_hashes = [hashes_in(folder, "what it has seen")] if earlier else []
    started_from = encoder_digest(encoder)
    named = [text.partition("=") for text in (*args.corpora, *args.replay)]
    specs = [CorpusSpec(name=name, path=path or None) for name, _, path in named]
    corpora = [load_corpus(spec, "--corpora").utterances for spec in specs]
    torch.manual_seed(args.seed)
    labels = [Labels.of(utterances) for utterances in corpora]
    model = (Supervised if args.objective == "supervised" else Masked)(encoder, pieces, labels, args.dropout)
    examples = kept(corpora, labels, args)

    work = args.output.with_name(f".{args.output.name}-{cache_key(str(vars(args)), started_from)}")
    settings = TrainingArguments(
        output_dir=str(work),
        max_steps=args.steps,
        per_device_train_batch_size=args.batch_size,
        seed=args.seed,
        logging_steps=20,
        logging_nan_inf_filter=False,
        save_steps=200,
        save_total_limit=1,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=args.report_to,
    )
    own = {"params": [p for p in encoder.parameters() if p.requires_grad], "weight_decay": 0.01}
    heads = {"params": [p for name, p in model.named_parameters() if not name.startswith("encoder.")]}
    heads |= {"weight_decay": 0.0, "lr": HEADS * args.learning_rate}
    optimizer = AdamW([own, heads], lr=args.learning_rate)
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warm_up) * (1 - step / args.steps))
    trainer = ByLength(model, settings, model.collate, train_dataset=examples, optimizers=(optimizer, schedule))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(work) if work.is_dir() else None)
    losses = [(row["step"], row["loss"]) for row in trainer.state.log_history if "loss" in row]
    if not all(math.isfinite(loss) for _, loss in losses):
        raise UserError(f"--learning-rate = {args.learning_rate:g}: the loss became infinite; allowed: a lower rate")

    places = ("output", "start", "corpora", "replay")
    about = {
        "started_from": {"name": Path(args.start).name, "sha256": started_from},
        "corpora": [{"name": spec.name, "digest": corpus_digest(spec)} for spec in specs],
        "earlier_corpora": earlier,
        "settings": {name: value for name, value in vars(args).items() if name not in places},
        "loss": losses,
    }
    made = work / "encoder"
    encoder.cpu().save_pretrained(made)
    pieces.save_tokenizer(made)
    if isinstance(model, Supervised):
        save_file(model.learnt_names(), made / NAMES)
    hashes = [hashes_of(utterance for utterances in corpora for utterance in utterances), *earlier_hashes]
    np.save(made / HASHES, np.unique(np.concatenate(hashes)))
    (made / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    made.rename(args.output)
    shutil.rmtree(work)
    print(f"the encoder is in {args.output}; use it with: --set model.pretrained={args.output}")


def start_of(name: str, dropout: float) -> tuple[Path, WordPieces, PreTrainedModel]:
    """Return folder, vocabulary and model of the encoder to start from, its embeddings frozen."""
    found, reason = pretrained_encoder(name)
    pieces = pretrained_pieces(name)
    if found is None or pieces is None or not fills_gaps(found.config):
        raise UserError(f"--start = {name}: {reason or 'no encoder'}; allowed: minilm, or an encoder such as BERT")
    encoder = found.load(dropout=dropout)
    getattr(encoder, "embeddings", encoder.get_input_embeddings()).requires_grad_(False)
    return found.folder, pieces, encoder


def kept(corpora: list[list[Utterance]], labels: list[Labels], args: argparse.Namespace) -> list[Example]:
    """Return the utterances to train on: of --corpora, and those drawn of --replay."""
    rng = np.random.default_rng(args.seed)
    inside: list[Example] = []
    others: list[Example] = []
    for number, utterances in enumerate(corpora):
        bare = {"O"} if labels[number].has_slots else set()
        some = [(number, one) for one in utterances if set(one.tags) != bare or rng.random() < args.slotless]
        (inside if number < len(args.corpora) else others).extend(some)
    return inside + [others[row] for row in rng.permutation(len(others))[: args.replayed]]


class ByLength(Trainer):
    """The Trainer, with batches of utterances of like length."""

    def _get_train_sampler(self, train_dataset: list[Example] | None = None) -> LengthGroupedSampler:
        lengths = [len(utterance.tokens) for _, utterance in self.train_dataset]
        return LengthGroupedSampler(self.args.train_batch_size, lengths=lengths)


class Objective(nn.Module):
    """An encoder and the loss that it is trained by."""

    def __init__(self, encoder: PreTrainedModel, pieces: WordPieces) -> None:
        super().__init__()
        self.encoder, self.pieces = encoder, pieces
        self.tag_of: dict[tuple[int, str], int] = {}
        self.intent_of: dict[tuple[int, str], int] = {}

    def collate(self, examples: list[Example]) -> dict[str, object]:
        """Return the batch of some utterances, and the corpus of each."""
        ids: dict[str, int] = {}
        words_n = np.array([ids.setdefault(word, len(ids)) for _, u in examples for word in u.tokens])
        lengths_b = np.array([len(u.tokens) for _, u in examples])
        tags_n = np.array([self.tag_of.get((c, tag), IGNORED) for c, u in examples for tag in u.tags])
        intent_b = np.array([self.intent_of.get((c, u.intent), IGNORED) for c, u in examples])
        batch = make_batch(make_table(self.pieces, list(ids)), words_n, lengths_b, tags_n, intent_b)
        return {"batch": batch, "corpus_b": torch.tensor([c for c, _ in examples])}

    def states(self, piece_bs: Tensor, mask_bs: Tensor) -> Tensor:
        """Return the last hidden states, (B, S, H) float32."""
        with torch.autocast(piece_bs.device.type, torch.bfloat16, enabled=in_bfloat16("auto", piece_bs.device)):
            found: Tensor = self.encoder(input_ids=piece_bs, attention_mask=mask_bs.long()).last_hidden_state
        return found.float()


class Names(nn.Module):
    """Scores of labels by their names, (A z) · (B e_x) / sqrt(d), with e_x the first state of a name, and 0 for O."""

    def __init__(self, encoder: PreTrainedModel, pieces: WordPieces, labels: list[str]) -> None:
        super().__init__()
        vectors_xh = torch.zeros(len(labels), encoder.config.hidden_size)
        named = [x for x, label in enumerate(labels) if label != "O"]
        if named:
            vectors_xh[named] = name_vectors(encoder, pieces, [readable(labels[x]) for x in named])
        self.state = nn.Linear(vectors_xh.shape[1], NAME_SIZE)
        self.name = nn.Linear(vectors_xh.shape[1], NAME_SIZE, bias=False)
        self.register_buffer("vectors_xh", vectors_xh)

    def forward(self, state_nh: Tensor) -> Tensor:
        return self.state(state_nh) @ self.name(self.vectors_xh).T / NAME_SIZE**0.5


class Supervised(Objective):
    """Slots and intents: softmaxes over the labels of the utterance's corpus, from heads and from names."""

    def __init__(self, encoder: PreTrainedModel, pieces: WordPieces, labels: list[Labels], dropout: float) -> None:
        super().__init__(encoder, pieces)
        tags = [(c, tag) for c, own in enumerate(labels) if own.has_slots for tag in own.tags]
        intents = [(c, intent) for c, own in enumerate(labels) if own.has_intents for intent in own.intents]
        if not tags and not intents:
            raise UserError("--corpora: none has slots, or more than one intent; allowed: --objective masked")
        self.tag_of, self.intent_of = ({one: x for x, one in enumerate(columns)} for columns in (tags, intents))
        hidden = encoder.config.hidden_size
        self.dropout = nn.Dropout(dropout)
        self.tags, self.intents = (nn.Linear(hidden, max(1, len(columns))) for columns in (tags, intents))
        self.register_buffer("tag_corpus_x", torch.tensor([c for c, _ in tags]).long())
        self.register_buffer("intent_corpus_x", torch.tensor([c for c, _ in intents]).long())
        self.register_buffer("kind_x", torch.tensor([TAG_KINDS.index(tag[0]) for _, tag in tags]).long())
        self.tag_names, self.intent_names = (Names(encoder, pieces, [y for _, y in one]) for one in (tags, intents))
        self.kinds = nn.Linear(hidden, len(TAG_KINDS))

    def forward(self, batch: Batch, corpus_b: Tensor) -> dict[str, Tensor]:
        """Return the loss of a batch, a mean over all of its tokens and of its utterances, labelled or not."""
        inputs, on_bt = batch.inputs, batch.mask_bt
        state_bsh = self.states(inputs.piece_bs, inputs.piece_mask_bs)
        token_bth = state_bsh.gather(1, inputs.first_bt[:, :, None].expand(-1, -1, state_bsh.shape[2]))
        token_nh, text_bh = self.dropout(token_bth[on_bt]), self.dropout(mean_state(state_bsh, inputs.piece_mask_bs))
        corpus_n, tag_n = corpus_b[:, None].expand_as(on_bt)[on_bt], batch.tags_bt[on_bt]
        loss = 0.0
        for tag_nx in (self.tags(token_nh), self.kinds(token_nh)[:, self.kind_x] + self.tag_names(token_nh)):
            loss += among_own(tag_nx, self.tag_corpus_x, corpus_n, tag_n)
        for intent_bx in (self.intents(text_bh), self.intent_names(text_bh)):
            loss += INTENT_WEIGHT * among_own(intent_bx, self.intent_corpus_x, corpus_b, batch.intent_b)
        return {"loss": loss}

    def learnt_names(self) -> dict[str, Tensor]:
        """Return the weights of the scores of names, without those of any corpus' own labels."""
        kept = ("kinds.", "tag_names.state.", "tag_names.name.", "intent_names.state.", "intent_names.name.")
        return {name: value.cpu() for name, value in self.state_dict().items() if name.startswith(kept)}


def among_own(score_nx: Tensor, corpus_x: Tensor, corpus_n: Tensor, label_n: Tensor) -> Tensor:
    """Return the mean cross entropy among the labels of each row's own corpus; rows without a label count as 0."""
    labelled = label_n != IGNORED
    if not labelled.any():
        return score_nx.sum() * 0
    foreign = corpus_x[None] != corpus_n[labelled, None]
    scores = score_nx[labelled].masked_fill(foreign, -torch.inf)
    return F.cross_entropy(scores, label_n[labelled], reduction="sum") / len(label_n)


class Masked(Objective):
    """Masked sub-words are guessed. The output layer is the encoder's embedding matrix, which is not trained."""

    def __init__(self, encoder: PreTrainedModel, pieces: WordPieces, labels: list[Labels], dropout: float) -> None:
        super().__init__(encoder, pieces)
        if pieces.mask is None:
            raise UserError(f"--objective = masked: the vocabulary of {pieces.source} has no mask; allowed: supervised")
        rows, size = encoder.get_input_embeddings().weight.shape
        self.dense, self.norm = nn.Linear(encoder.config.hidden_size, size), nn.LayerNorm(size)
        self.bias = nn.Parameter(torch.zeros(rows))

    def forward(self, batch: Batch, corpus_b: Tensor) -> dict[str, Tensor]:
        """Return the mean loss of a batch's masked sub-words."""
        piece_bs, on_bs = batch.inputs.piece_bs, batch.inputs.piece_mask_bs
        special = piece_bs.new_tensor([self.pieces.start, self.pieces.end, self.pieces.unknown])
        out_bs = (
            on_bs & ~torch.isin(piece_bs, special) & (torch.rand(piece_bs.shape, device=piece_bs.device) < LEFT_OUT)
        )
        out_bs = out_bs if out_bs.any() else on_bs
        chance_bs = torch.rand(piece_bs.shape, device=piece_bs.device)
        seen_bs = piece_bs.masked_fill(out_bs & (chance_bs < MASKED), self.pieces.mask)
        random_bs = torch.randint_like(piece_bs, len(self.bias))
        seen_bs = torch.where(out_bs & (chance_bs >= 1 - RANDOM), random_bs, seen_bs)
        state_mh = self.states(seen_bs, on_bs)[out_bs]
        score_mv = self.norm(F.gelu(self.dense(state_mh))) @ self.encoder.get_input_embeddings().weight.T + self.bias
        return {"loss": F.cross_entropy(score_mv, piece_bs[out_bs])}


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"pretrain_encoder: {error}")
