"""One configuration, trained and measured as a trial is."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from sweeps.front import privacy_statement
from sweeps.prepare import encode_missing, ensure_attack, locate, read_missing
from sweeps.resources import plan
from sweeps.session import ray_session, worker_group
from sweeps.settings import load_config, write_yaml
from sweeps.spec import ResourcesSpec, SearchSpec
from sweeps.store import Sweep, folder_name
from sweeps.tracking import Tracker, default_tracking_uri, flat, trial_tags
from sweeps.watch import Watch
from trainables.trial import TrialError
from trainables.worker import TrialJob


def train(
    config: Path, overrides: list[str], *, storage: Path, tracking_uri: str | None, watch: Watch
) -> dict[str, Any]:
    """Trains `config` on the path that a sweep's trial takes, and tracks it as a run of experiment `train`.

    Returns:
        What `edp-sweep train --json` prints.

    Raises:
        UserError: before anything was made.
        TrialError: when the training failed, with the reason.
    """
    spec = load_config(config, overrides)
    place = Sweep.new(storage, f"train-{folder_name(config.stem)}-{datetime.now():%Y%m%d-%H%M%S-%f}")
    prepared = locate(spec, place.cache)
    corpora = read_missing(spec, prepared)
    with ray_session(place.log):
        placed = plan(spec.training, ResourcesSpec(), SearchSpec(concurrency=1))
        uri = tracking_uri or default_tracking_uri(storage)
        tracker = Tracker(uri, "train", storage / "mlflow-artifacts")
        watch.say(f"training {config}: {placed.line}; Ray's log: {place.log}")
        watch.expect(1, 0, spec.training.epochs)
        run_id = tracker.start(
            place.name,
            params=flat(spec.model_dump(mode="json")),
            tags=trial_tags(place.name, spec) | {"role": "train"},
        )
        place.folder.mkdir(parents=True)
        write_yaml(spec, place.folder / "config.yaml")

        def on_epoch(epoch: int, metrics: dict[str, float]) -> None:
            watch.epoch("training", spec.training.epochs, epoch, metrics)
            tracker.log(run_id, metrics, epoch)

        status = "FAILED"
        try:
            encode_missing(spec, prepared, corpora, watch.say)
            with worker_group(place, placed) as (run, _):
                ensure_attack(
                    spec,
                    prepared,
                    place.folder / "shadow",
                    run,
                    watch.epoch,
                )
                result = run(TrialJob(spec, prepared.corpus, place.folder, prepared.attack, prepared.coins), on_epoch)
            tracker.log(run_id, result.metrics, spec.training.epochs)
            private = privacy_statement(result.metrics, spec.edp)
            tracker.tag(run_id, result.tags | {"state": "complete", "privacy": private})
            for name, folder in (("config.yaml", None), ("ledger.json", None), ("model.pt", "model")):
                tracker.artifact(run_id, place.folder / name, folder)
            status = "FINISHED"
        except TrialError as error:
            tracker.tag(run_id, {"state": "failed", "reason": str(error)})
            raise
        finally:
            tracker.end(run_id, status)
    return {
        "metrics": result.metrics,
        "run_id": run_id,
        "ledger": result.ledger.model_dump(mode="json"),
        "output": str(place.folder),
        "tracking_uri": uri,
    }
