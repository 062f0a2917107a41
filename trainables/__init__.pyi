from .config import (
    BERTSpec as BERTSpec,
)
from .config import (
    CanariesSpec as CanariesSpec,
)
from .config import (
    CLCSpec as CLCSpec,
)
from .config import (
    CorpusSpec as CorpusSpec,
)
from .config import (
    ShadowSpec as ShadowSpec,
)
from .config import (
    TrainingSpec as TrainingSpec,
)
from .config import (
    TrialSpec as TrialSpec,
)
from .corpora import (
    Splits as Splits,
)
from .corpora import (
    Utterance as Utterance,
)
from .corpora import (
    check_corpus as check_corpus,
)
from .corpora import (
    generate as generate,
)
from .corpora import (
    load_corpus as load_corpus,
)
from .corpora import (
    read_corpus as read_corpus,
)
from .measure.attacks.shadow import (
    attack_metrics as attack_metrics,
)
from .measure.attacks.shadow import (
    attack_scores as attack_scores,
)
from .measure.attacks.shadow import (
    fit_attack as fit_attack,
)
from .measure.predictions import (
    semantic_error_rate as semantic_error_rate,
)
from .measure.predictions import (
    semantic_errors as semantic_errors,
)
from .measure.predictions import (
    slot_f1 as slot_f1,
)
from .models import JointModel as JointModel
from .models import build_model as build_model
from .models.released import load_model as load_model
from .records.job import (
    EpochResult as EpochResult,
)
from .records.job import (
    TrialError as TrialError,
)
from .records.job import (
    TrialJob as TrialJob,
)
from .records.job import (
    TrialResult as TrialResult,
)
from .records.job import (
    TrialStopped as TrialStopped,
)
from .workers.client import GroupSpec as GroupSpec
from .workers.client import run_job as run_job
from .workers.worker import run_trial as run_trial
from .workers.worker_group import WorkerGroup as WorkerGroup
from .workers.worker_group import run_fresh as run_fresh

__version__: str
