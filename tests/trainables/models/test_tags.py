"""What labels' scores are made of: of types that B-x and I-x share, of words that names share."""

from __future__ import annotations

import torch

from tests.support.toy import BERT
from trainables.config import HeadSpec
from trainables.corpora.labels import Labels
from trainables.models import build_model
from trainables.models.tags import intent_codes, tag_codes

TAGS = ("O", "B-from.city_name", "I-from.city_name", "B-to.city_name", "I-to.city_name", "B-day", "I-day")
LABELS = Labels(("alarmSet", "alarm_remove", "news"), TAGS)


def test_rows_of_types_stay_where_registered_models_have_them() -> None:
    codes_ck = tag_codes(LABELS, types=True, parts=False)
    assert codes_ck is not None
    made_of = {  # O, B, I, from.city_name, to.city_name, day
        "O": [1, 0, 0, 0, 0, 0],
        "B-from.city_name": [0, 1, 0, 1, 0, 0],
        "I-from.city_name": [0, 0, 1, 1, 0, 0],
        "B-to.city_name": [0, 1, 0, 0, 1, 0],
        "I-to.city_name": [0, 0, 1, 0, 1, 0],
        "B-day": [0, 1, 0, 0, 0, 1],
        "I-day": [0, 0, 1, 0, 0, 1],
    }
    assert codes_ck.t().tolist() == [made_of[tag] for tag in TAGS]
    both_ck = tag_codes(LABELS, types=True, parts=True)
    assert both_ck is not None
    assert torch.equal(both_ck[:6], codes_ck)
    assert both_ck[6:].tolist() == [[0, 0.5, 0.5, 0.5, 0.5, 0, 0]] * 2  # city and name, which two names have


def test_words_that_several_names_have_are_shared_also_by_intents() -> None:
    codes_ck = tag_codes(LABELS, types=False, parts=True)
    assert codes_ck is not None
    assert torch.equal(codes_ck[:7], torch.eye(7))
    assert codes_ck[7:].tolist() == [[0, 0.5, 0.5, 0.5, 0.5, 0, 0]] * 2
    codes_ci = intent_codes(LABELS, parts=True)
    assert codes_ci is not None
    assert codes_ci.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]]


def test_a_shared_word_learns_from_one_label_for_another() -> None:
    model = BERT.model_copy(update={"head": HeadSpec(shared_parts=True)})
    net = build_model(model, LABELS, seed=0)
    assert net.intent_head is not None
    weight_ch = net.intent_head.weight
    score_i = (net.intent_head.weight.sum(1) @ net.codes_ci) if net.codes_ci is not None else torch.zeros(3)
    slope_ch = torch.autograd.grad(score_i[0], weight_ch)[0]
    assert (slope_ch.abs().sum(1) > 0).tolist() == [True, False, False, True]
