from .config.loading import load_recipe as load_recipe
from .config.recipe import Recipe as Recipe
from .engine.jobs.confirm import confirm as confirm
from .engine.jobs.search import resume_sweep as resume_sweep
from .engine.jobs.search import start_sweep as start_sweep
from .engine.jobs.train import train as train
from .engine.progress import Progress as Progress
from .engine.trials import SweepFailed as SweepFailed
from .registry.pick import pick as pick
from .registry.register import register_point as register_point
from .results.frames import epochs_frame as epochs_frame
from .results.frames import front_frame as front_frame
from .results.frames import trials_frame as trials_frame
from .results.front import pareto_front as pareto_front
from .results.front import ties as ties
from .results.recommendation import picked_spec as picked_spec
from .store.records import Point as Point
from .store.records import SweepRecord as SweepRecord
from .store.records import TrialRecord as TrialRecord
from .store.sweep import Sweep as Sweep
from .store.sweep import all_sweeps as all_sweeps
from .text.signals import SweepStopped as SweepStopped

__version__: str
