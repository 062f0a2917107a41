"""A ledger says what happened, in few entries, and comes back from JSON as it was."""

from edp.epsilon import epsilon
from edp.ledger import AlphaRelease, Ledger, Mechanism

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
