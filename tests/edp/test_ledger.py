"""A ledger says what happened, in few entries, and comes back from JSON as it was."""

import json

import pytest

from edp.accounting.epsilon import epsilon
from edp.ledger import AlphaRelease, Ledger, LedgerEntry
from edp.mechanism import Mechanism

FULL = Mechanism(C=1.0, z=1.0, N=8)
LESS = FULL.model_copy(update={"z": 0.5})


def test_equal_steps_of_an_epoch_are_condensed():
    ledger = Ledger()
    for epoch, mechanism in [(0, FULL), (0, FULL), (0, LESS), (0, FULL), (1, FULL)]:
        ledger = ledger.record(epoch, mechanism)
    assert [(e.epoch, e.steps, e.mechanism.z) for e in ledger.entries] == [
        (0, 2, 1.0),
        (0, 1, 0.5),
        (0, 1, 1.0),
        (1, 1, 1.0),
    ]
    assert ledger.steps == 5


def test_recording_leaves_the_earlier_ledger_as_it_was():
    empty = Ledger()
    empty.record(0, FULL)
    assert empty.entries == ()


def test_json_and_back():
    ledger = Ledger(alpha_release=AlphaRelease(z=3.0)).record(0, FULL).record(1, LESS)
    back = Ledger.model_validate_json(ledger.model_dump_json())
    assert back == ledger
    assert epsilon(back, 1e-5) == epsilon(ledger, 1e-5)


@pytest.mark.parametrize(
    ("mechanism", "std"),
    [
        ({}, 0.5 * 3 / 8),
        ({"noise": "paper"}, 0.5 * 3 / 8**1.5),
        ({"max_alpha": 0.7}, 0.5 * 3 / 8),
        ({"max_alpha": 0.7, "alpha_noise": "per_layer"}, 0.7 * 0.5 * 3 / 8),
    ],
)
def test_an_entry_says_how_much_noise_its_steps_had_also_in_json(mechanism, std):
    ledger = Ledger().record(0, Mechanism(C=0.5, z=3.0, N=8, **mechanism))
    assert ledger.entries[0].noise_std == pytest.approx(std)
    (entry,) = json.loads(ledger.model_dump_json())["entries"]
    assert entry["noise_std"] == pytest.approx(std)


def test_what_was_lost_of_an_epoch_that_was_kept_in_part_is_counted():
    def entry(epoch, steps):
        return LedgerEntry(epoch=epoch, steps=steps, mechanism=FULL)

    kept = Ledger(entries=(entry(0, 100), entry(1, 10)))
    written = Ledger(entries=(entry(0, 100), entry(1, 100), entry(0, 100)))
    (lost,) = kept.after_loss(written).discarded
    assert lost.entries == (entry(1, 90), entry(0, 100))
    assert kept.after_loss(kept).discarded == ()
