"""Attacks, readers and samplers of other packages serve like our own. A broken one is a line that names its package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optuna.samplers import NSGAIIISampler, TPESampler

from edp.spec import UserError
from sweeps.config.parts import SearchSpec
from sweeps.engine.study import sampler
from tests.conftest import TINY_RECIPE, Command
from tests.support.plugin_package import installed
from trainables.config import CorpusSpec
from trainables.corpora import corpus_digest, load_corpus
from trainables.corpora.formats import read_corpus
from trainables.measure.attacks import Evidence, every_attack

SOURCE = """
import optuna
from trainables import Utterance
from trainables.measure.attacks import Attack

def read(path):
    for line in path.read_text().splitlines():
        intent, _, text = line.partition("|")
        words = tuple(text.split())
        yield Utterance(words, ("O",) * len(words), intent)

def fail(path):
    yield read(path).__next__()
    raise KeyError("line 2")

guess = Attack("coin", "a coin", "nothing", "#123456", ("losses_n",), lambda losses_n: -losses_n)
wrong = Attack("shadow", "a name that is taken", "nothing", "#123456", (), lambda: None)
none = "no attack"

class Mine(optuna.samplers.RandomSampler):
    def __init__(self, seed=None, wide=False):
        super().__init__(seed)
        self.seed, self.wide = seed, wide
"""


def test_a_reader_is_a_format(tmp_path: Path, command: Command) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    lines = [f"{intent}|{word} number {word}" for word in "abcdefghijklmnopqrst" for intent in ("greet", "leave")]
    (corpus / "a.txt").write_text("\n".join(lines))
    (corpus / "b.txt").write_text("greet|good morning\n")
    with installed(tmp_path, SOURCE, readers="bars = their_plugins:read\nbroken = their_plugins:fail"):
        spec = CorpusSpec(name="mine", path=str(corpus), format="bars")
        assert [one.intent for one in read_corpus(corpus, "bars")] == [*["greet", "leave"] * 20, "greet"]
        assert load_corpus(spec).utterances
        before = corpus_digest(spec)
        (corpus / "b.txt").write_text("greet|good evening\n" * 2)
        assert corpus_digest(spec) != before
        assert command("data", "check", str(corpus), "--format", "bars")[0] == 0
        code, _, err = command("data", "check", str(corpus), "--format", "broken")
        assert (code, len(err.splitlines())) == (2, 1)
        assert "package their-plugins: its entry point edp_sweeps.readers, broken = their_plugins:fail" in err
        assert f"{corpus / 'a.txt'}: KeyError: 'line 2'" in err
    code, _, err = command("data", "check", str(corpus), "--format", "bars")
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("edp-sweep: format = 'bars': input should be 'auto', ")


def test_an_attack_is_one_of_all(tmp_path: Path) -> None:
    with installed(tmp_path, SOURCE, attacks="coin = their_plugins:guess"):
        attack = every_attack()[-1]
        assert (attack.name, len(every_attack())) == ("coin", 1 + len({one.name for one in every_attack()[:-1]}))
        seen = Evidence(members=1, losses_n=np.array([0.5, 2.0]))
        assert attack.score(losses_n=seen.losses_n).tolist() == [-0.5, -2.0]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("none", r"it is no trainables\.measure\.attacks\.Attack"),
        ("wrong", "there is another attack shadow"),
        ("missing", "AttributeError: .*missing"),
    ],
)
def test_a_broken_attack_is_a_line_that_names_its_package(entry: str, says: str, tmp_path: Path) -> None:
    with (
        installed(tmp_path, SOURCE, attacks=f"one = their_plugins:{entry}"),
        pytest.raises(UserError, match=rf"^package their-plugins: .* = their_plugins:{entry}, cannot be used \({says}"),
    ):
        every_attack()


def test_a_sampler_is_named_by_plugin_or_path_and_takes_arguments_and_the_seed(tmp_path: Path) -> None:
    with installed(tmp_path, SOURCE, samplers="theirs = their_plugins:Mine"):
        for name in ("theirs", "their_plugins:Mine"):
            made = sampler(SearchSpec(sampler=name, seed=7, sampler_arguments={"wide": True}))
            assert (type(made).__name__, vars(made)["seed"], vars(made)["wide"]) == ("Mine", 7, True)
    made = sampler(SearchSpec(sampler="optuna.samplers:NSGAIIISampler", sampler_arguments={"population_size": 8}))
    assert isinstance(made, NSGAIIISampler)
    own = sampler(SearchSpec(sampler_arguments={"n_startup_trials": 3}))
    assert isinstance(own, TPESampler)
    assert own._n_startup_trials == 3


REFUSED = [
    ({"sampler": "optunahub:samplers/auto_sampler:AutoSampler"}, "No module named 'optunahub'; allowed: pip install"),
    ({"sampler": "no_such_module:Mine"}, "No module named 'no_such_module'; allowed: an installed module:Class"),
    ({"sampler": "optuna.samplers:Nothing"}, "has no attribute 'Nothing'"),
    ({"sampler": "optuna:Study"}, "Study with .* cannot be used"),
    ({"sampler": "optuna.samplers:CmaEsSampler"}, "multi-objective"),
    ({"sampler_arguments": {"depth": 3}}, "TPESampler with .* cannot be used .*depth"),
]


@pytest.mark.parametrize(("settings", "says"), REFUSED)
def test_a_sampler_that_cannot_be_used_is_one_line(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=rf"^search\.sampler = .*{says}"):
        sampler(SearchSpec.model_validate(settings))


def test_a_sampler_that_cannot_be_used_starts_no_sweep(tmp_path: Path, command: Command) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY_RECIPE)
    words = ("run", str(tmp_path / "tiny.yaml"), "--storage", str(tmp_path / "runs"), "--name", "one")
    code, _, err = command(*words, "--set", "search.sampler=no_such:Class")
    assert code == 2
    assert err.splitlines()[-1].startswith("edp-sweep: search.sampler = no_such:Class: No module named 'no_such'")
    assert not (tmp_path / "runs" / "one").exists()
    code, _, err = command(*words, "--set", "search.sampler=tpee")
    assert (code, err.splitlines()[-1].startswith("edp-sweep: search.sampler = 'tpee': ")) == (2, True)
