"""The generated corpora: the same everywhere, distinct, valid, wide, and neither trivial nor uniform."""

from __future__ import annotations

import hashlib
from itertools import islice

import pytest

from edp.spec import UserError
from trainables.corpora import GENERATED, Utterance, generate, stream
from trainables.corpora.generators import Grammar, grammar_digest, stream_grammar
from trainables.corpora.types import bio_fault

MANY = 8_000


@pytest.fixture(scope="module", params=GENERATED)
def many(request: pytest.FixtureRequest) -> tuple[str, list[Utterance]]:
    return request.param, generate(request.param, MANY, seed=11)


@pytest.mark.parametrize(
    ("name", "count", "seed", "digest"),
    [
        ("communication", 1000, 7, "7a24f3ffcf937b7c63d8b400406c9516b0451cd52f18dc2bfd2d084ba3bdac02"),
        ("health", 1000, 7, "eee7e08d93208f74cd3cddc15d254d93ee64b782c413998a9a3eaef4ebc82bd6"),
        ("video", 1000, 7, "7db5e254e297f0ef7f9a6ee775803c5a547c195f88136ca53573ee23503999fb"),
    ],
)
def test_the_utterances_of_a_seed_are_the_same_on_every_machine_and_in_every_version(
    name: str, count: int, seed: int, digest: str
) -> None:
    text = "\n".join("\t".join((*u.tokens, *u.tags, u.intent)) for u in generate(name, count, seed))
    assert hashlib.sha256(text.encode()).hexdigest() == digest


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("communication", "db6666bdada34deb0e5f0c6a1e5d9133963be5d1dce759eac72ddf0caa21d32f"),
        ("health", "5417b3634b36999760a78204e8cb2dc4a6b66cca03b261c4ac83f62b44aaedad"),
        ("video", "3b0359c3b61adacaab4290b51d75326c96043dfdcca3f2516056a51450422125"),
    ],
)
def test_a_grammars_digest_stays_so_that_caches_of_encoded_corpora_stay_valid(name: str, digest: str) -> None:
    assert grammar_digest(name) == digest


@pytest.mark.slow
def test_utterances_are_distinct_and_valid(many: tuple[str, list[Utterance]]) -> None:
    _, utterances = many
    assert len({utterance.tokens for utterance in utterances}) == MANY
    for utterance in utterances:
        assert len(utterance.tokens) == len(utterance.tags)
        assert all(utterance.tokens)
    assert [fault for tags in {u.tags for u in utterances} if (fault := bio_fault(tags))] == []


def test_more_utterances_only_add_to_the_end(many: tuple[str, list[Utterance]]) -> None:
    name, utterances = many
    assert generate(name, 5000, seed=11) == utterances[:5000]
    assert list(islice(stream(name, seed=11), 300)) == utterances[:300]


def test_a_grammar_that_has_said_everything_says_so() -> None:
    tiny = Grammar("tiny", {"greet": ("good <when>",)}, {}, {}, {"when": ("day", "bye")})
    with pytest.raises(UserError, match="corpus tiny has no more than about"):
        list(stream_grammar(tiny, seed=0))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="corpus banking is not a generated one; allowed: communication, health, video"):
        generate("banking", 10, seed=0)
