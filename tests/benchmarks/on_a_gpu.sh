#!/bin/sh
# The benchmarks of one GPU, in some ten minutes: sh tests/benchmarks/on_a_gpu.sh [PYTHON]
# Writes tests/benchmarks/results/step-gpu-*.json. Opacus has rows where it is installed.
set -eu
python=${1:-python}
cd "$(dirname "$0")/../.."
$python -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "on_a_gpu.sh: PyTorch sees no CUDA device here; nothing was measured")'
results=tests/benchmarks/results
methods=sgd,edp,edp:noise=paper,edp:alpha_noise=per_layer,dpsgd,sgd:precision=float32,plain,opacus,opacus-ghost
for model in clc bert; do
    $python -m tests.benchmarks.step --device cuda --models $model --methods $methods --batch-sizes 32,256 --workers 1 \
        --rounds 7 > $results/step-gpu-$model.json.part
    mv $results/step-gpu-$model.json.part $results/step-gpu-$model.json
done
$python -m tests.benchmarks.decoder > $results/step-gpu-decoder.json.part
mv $results/step-gpu-decoder.json.part $results/step-gpu-decoder.json
