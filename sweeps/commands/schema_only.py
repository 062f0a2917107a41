"""`edp-sweep schema-only`: what the schema alone answers, without any private utterance, at ε = 0."""

from __future__ import annotations

from edp.spec import UserError
from sweeps.commands.console import err, out, print_json
from sweeps.commands.options import RUNS, Json, Recipe, Set, Storage
from sweeps.config.loading import load_recipe
from sweeps.run.progress import Progress
from sweeps.text.figures import utility_words
from sweeps.text.terminal import print_line


def schema_only_command(
    recipe: Recipe,
    settings: Set = None,
    storage: Storage = RUNS,
    as_json: Json = False,
) -> None:
    """Measure heads that learnt from the text of `corpus.schema` alone. A private model must be better."""
    stem, loaded = load_recipe(recipe, settings or [])
    spec = loaded.baseline()
    from sweeps.run.prepare import encode_missing, locate, read_missing  # PyTorch takes seconds to import
    from sweeps.run.schema_only import measure_schema_only
    from trainables.corpora.schema import public_text
    from trainables.features.states import has_states

    if not has_states(spec.model):
        raise UserError(
            f"recipe = {stem}: its model has no model.features, so no heads can learn from a schema first; "
            "allowed: a recipe of heads, such as atis_private"
        )
    text = public_text(spec.corpus)
    if not text:
        raise UserError(
            f"corpus.schema = {spec.corpus.schema or 'null'}: there are no samples in it to learn from; "
            "allowed: a schema with samples"
        )
    with Progress(err) as progress:
        prepared = locate(spec, storage / "cache")
        encode_missing(spec, prepared, read_missing(spec, prepared), progress.say)
        progress.say(f"heads learn from {len(text):,} utterances of the schema's text")
        metrics = measure_schema_only(spec, prepared)
    if as_json:
        print_json({"recipe": stem, "schema": spec.corpus.schema, "text": len(text), "metrics": metrics})
        return
    valid = f"validation SER {metrics['valid_ser']:.1%}"
    print_line(out, f"the schema alone: {valid}, {utility_words(metrics)}; no private utterance taught it, so ε = 0")
