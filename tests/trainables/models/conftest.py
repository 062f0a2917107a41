"""Tiny matrices: threads would wait for each other longer than they compute. Small encoders of every architecture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from transformers.utils import logging  # takes seconds to import

    from tests.support.encoder_folders import KINDS, make_encoder

    logging.disable_progress_bar()
    place = tmp_path_factory.mktemp("encoders")
    return {kind: make_encoder(kind, place / kind) for kind in KINDS}
