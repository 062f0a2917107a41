from .config.loading import load_recipe as load_recipe
from .config.recipe import Recipe as Recipe
from .engine.jobs.confirm import confirm as confirm
from .engine.jobs.run import resume as resume
from .engine.jobs.run import run as run
from .engine.jobs.train import train as train
from .engine.trials import SweepFailed as SweepFailed
from .registry.pick import pick as pick
from .registry.register import register_point as register_point
from .results.sweep import Sweep as Sweep
from .results.sweep import load_sweep as load_sweep
from .store.records import Point as Point
from .store.records import TrialRecord as TrialRecord
from .text.signals import SweepStopped as SweepStopped

__version__: str
