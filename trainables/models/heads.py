"""Linear heads on the states of a frozen encoder, which were computed beforehand (`trainables.states`).

The encoder is no part of this model: it is public, and nothing here needs it, nor the `transformers` library.
"""

from __future__ import annotations

from torch import Tensor, nn

from trainables.batch import Batch, StateInputs
from trainables.models.joint import JointModel
from trainables.spec import BERTSpec
from trainables.tokens import Labels


class Heads(JointModel):
    """An intent head and a slot head that begin as zero; their vectors' constant takes the place of a bias.

    There is no dropout. On linear heads the scores of BIO, of types and of intents are all that is private.
    """

    def __init__(self, spec: BERTSpec, labels: Labels, sizes: tuple[int, int]) -> None:
        """With `sizes`, the width of a token's vector and of a sentence's (`States.sizes`)."""
        super().__init__(sentence_size=sizes[1], token_size=sizes[0], labels=labels, dropout=0.0, head=spec.head)
        self.intent_head = nn.Linear(sizes[1], self.intent_head.out_features, bias=False)
        self.slot_head = nn.Linear(sizes[0], self.slot_head.out_features, bias=False)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        assert spec.pretrained is not None, "BERTSpec asks for it"
        self.pretrained_source = spec.pretrained
        self.encoder_is_frozen = True

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = batch.inputs
        assert isinstance(inputs, StateInputs), "heads read states; open the corpus with them"
        return inputs.sentence_bd, inputs.token_btd
