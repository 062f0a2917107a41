"""One trial: corpora, encoding, models, SER, attacks, and the worker loop that trains and measures a configuration.

Must not import MLflow, Optuna or the sweeps.
"""

import lazy_loader

from edp import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
