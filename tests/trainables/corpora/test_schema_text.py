"""The text of a schema: its labels are right, all samples and values are used, and a fault is one line."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edp.spec import UserError
from trainables.corpora.schema import read_schema
from trainables.corpora.schema_text import VARIANTS, VARIANTS_WITHOUT_SLOTS, Part, Samples, make_text, marked, parts_of
from trainables.corpora.types import NO_INTENT, Utterance, bio_fault

GIVEN = Samples(
    {
        "book": ["a flight to {city}", "fly from [new york](city) to {city} on [may first](day)", "{city} {day}"],
        "bye": ["bye bye", "see you"],
    },
    {"city": ["rome", "los angeles", "the hague"], "day": ["today"], "unused": ["x"]},
    before=["please", "can you"],
    after=["right now"],
)
CITIES, DAYS = [*GIVEN.values["city"], "new york"], ["today", "may first"]


def literal_parts(sample: str) -> list[Part] | None:
    """Read a sample letter by letter; None for a fault."""
    found: list[Part] = []
    words, i = "", 0
    while i < len(sample):
        if sample[i] == "{":
            end = sample.find("}", i)
            slot = sample[i + 1 : end]
            if end < 0 or not slot or any(letter in "{[] " for letter in slot):
                return None
            found += [Part(tuple(words.split())), Part((), slot)]
            words, i = "", end + 1
        elif sample[i] == "[":
            end = sample.find("]", i)
            close = sample.find(")", end)
            value, slot = sample[i + 1 : end], sample[end + 2 : close]
            if end < 0 or close < 0 or sample[end + 1 : end + 2] != "(" or not value or not slot:
                return None
            if any(letter in "[{}" for letter in value) or any(letter in "( " for letter in slot):
                return None
            found += [Part(tuple(words.split())), Part(tuple(value.split()), slot)]
            words, i = "", close + 1
        elif sample[i] in "]}":
            return None
        else:
            words, i = words + sample[i], i + 1
    kept = [one for one in [*found, Part(tuple(words.split()))] if one.slot or one.words]
    return kept or None


PIECES = st.sampled_from(
    ["a", "b c", " ", "{x}", "[v w](y)", "[v](x.y)", "{", "}", "[", "]", "(", ")", "{ }", "[ ](z)"]
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_the_parts_of_a_sample_are_those_of_a_reading_letter_by_letter(sample: str) -> None:
    wanted = literal_parts(sample)
    if wanted is None:
        with pytest.raises(ValueError, match=r"a sample has no words|belongs to no slot"):
            parts_of(sample)
    else:
        assert parts_of(sample) == wanted


def every_variant(given: Samples, intent: str, sample: str, *, first: bool = False) -> set[Utterance]:
    """Return all utterances that a sample may become, one word and label after the other."""
    values = {"city": CITIES, "day": DAYS}
    choices: list[list[list[tuple[str, str]]]] = [[[]]]
    for part in parts_of(sample):
        if not part.slot:
            choices.append([[(word, "O") for word in part.words]])
            continue
        texts = [" ".join(part.words)] if first and part.words else values[part.slot]
        choices.append(
            [
                [(word, f"{'B' if number == 0 else 'I'}-{part.slot}") for number, word in enumerate(text.split())]
                for text in texts
            ]
        )
    around = (
        [[(word, "O") for word in text.split()] for text in ["", *texts]] for texts in (given.before, given.after)
    )
    before, after = around if not first else ([[]], [[]])
    found = set()
    for pieces in product(before, *choices, after):
        pairs = [pair for piece in pieces for pair in piece]
        found.add(Utterance(tuple(word for word, _ in pairs), tuple(tag for _, tag in pairs), intent))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_every_utterance_is_a_variant_of_a_sample_with_the_right_labels_and_comes_once(seed: int) -> None:
    made = make_text(GIVEN, seed=seed)
    allowed = {
        one: sample
        for intent, samples in GIVEN.samples.items()
        for sample in samples
        for one in every_variant(GIVEN, intent, sample)
    }
    assert set(made) <= allowed.keys()
    assert len(set(made)) == len(made)
    assert all(bio_fault(one.tags) is None for one in made)
    times = Counter(allowed[one] for one in made)
    for sample in (sample for samples in GIVEN.samples.values() for sample in samples):
        assert 1 <= times[sample] <= (VARIANTS if "{" in sample or "[" in sample else VARIANTS_WITHOUT_SLOTS)


def test_the_first_round_has_every_sample_with_its_own_values() -> None:
    for seed in range(5):
        whole = make_text(GIVEN, seed=seed)
        written = [(intent, sample) for intent, samples in GIVEN.samples.items() for sample in samples]
        for one, (intent, sample) in zip(whole, written, strict=False):
            assert one in every_variant(GIVEN, intent, sample, first=True)
        assert make_text(GIVEN, most=len(whole), seed=seed) == whole
        for most in (1, 5, 9):
            assert len(make_text(GIVEN, most=most, seed=seed)) == most


def test_no_value_comes_again_before_all_values_have() -> None:
    samples = {"a": [f"w{i} " + "{slot}" for i in range(50)], "b": ["no slot"]}
    few = make_text(Samples(samples, {"slot": [f"v{i}" for i in range(7)]}), most=50)
    assert set(Counter(one.tokens[1] for one in few if one.intent == "a").values()) == {7}
    many = make_text(Samples(samples, {"slot": [f"v{i}" for i in range(3000)]}))
    assert len(many) == 50 * VARIANTS + 1
    assert set(Counter(one.tokens[1] for one in many if one.intent == "a").values()) == {1}


def test_samples_alone_have_no_intent_and_a_slot_without_values_makes_no_text() -> None:
    made = make_text(Samples({NO_INTENT: ["to {city}", "to {nowhere}"]}, {"city": ["rome"]}))
    assert made == [Utterance(("to", "rome"), ("O", "B-city"), NO_INTENT)]
    assert make_text(Samples({}, {})) == []
    assert (GIVEN.count, GIVEN.distinct_values) == (5, 7)


def test_an_utterance_with_its_slots_marked_reads_as_itself() -> None:
    for one in make_text(GIVEN):
        again = Samples({one.intent: [marked(one)]}, {})
        assert make_text(again, most=1) == [one]
    assert marked(Utterance(("rome", "paris"), ("B-city", "B-city"), "")) == "[rome](city) [paris](city)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("intents: {a: {samples: ['to {city']}, b: }", r"intents\.a\.samples: 'to \{city': \{ belongs to no slot; "),
        ("intents: {a: {samples: ['x', 'to ]']}, b: }", r"intents\.a\.samples: 'to \]': \] belongs to no slot"),
        ("intents: {a: {samples: ['to {city}']}, b: }", r"intents\.a\.samples: 'to \{city\}': there is no slot city"),
        ("intents: {a: {samples: ['to [x](city)']}, b: }\nslots: [day]", "there is no slot city"),
        ("slots: [city]\nsamples: ['{city}']", r"slots\.city: a sample has it, and it has no value; allowed"),
        ("slots: [city]\nsamples: ['']", "samples: text 1 has no words, or char"),
        ("slots: {city: {values: [' ']}}", r"slots\.city\.values: text 1 has no words"),
        ("slots: {city: {values: towns}}", r"slots\.city\.values: there is no catalogue towns; allowed"),
        ("slots: {city: {values: towns}}\ncatalogues: {cities: [rome]}", "no catalogue towns; allowed: cities"),
        ("slots: {city: {values: {a: b}}}", r"slots\.city\.values: allowed: a list of texts, or the name of a cat"),
        ("slots: {city: {values: [a, [b]]}}", r"slots\.city\.values\.1: allowed: a list of texts"),
        ("slots: [a]\ncatalogues: {x: y}", r"catalogues\.x: allowed: a list of texts"),
        ("intents: [a, b]\nsamples: [c]", "samples: which intent they have is unknown; allowed: samples below each"),
        ("intents: {a: {samples: b}, c: }", r"intents\.a\.samples: allowed: a list of texts"),
        ("intents: {a: {sample: [b]}, c: }", r"intents\.a\.sample: unknown key; allowed: description, samples"),
        ("slots: {city: {value: [b]}}", r"slots\.city\.value: unknown key; allowed: description, values"),
        ("slots: [city]\nbefore: ['']", "before: text 1 has no words"),
    ],
)
def test_a_fault_of_a_sample_is_one_line_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says) as error:
        read_schema(path, "corpus.schema = x")
    assert str(error.value).startswith("corpus.schema = x: ")
    assert "\n" not in str(error.value)
    assert "allowed" in str(error.value)
