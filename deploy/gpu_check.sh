#!/bin/sh
# Trains the recipe `tiny` on one GPU and on the CPU, from the same seed, and compares the two.
# It takes minutes, needs no network and writes to OUT. Exit codes: 0 they agree, 1 they differ,
# 4 JAX finds no such device, 5 a run failed.
#
#   deploy/gpu_check.sh                  with `pip install 'jax[cuda13]'` in the environment
#   DEVICE=cpu deploy/gpu_check.sh       tries the check itself, without a GPU
set -eu
DEVICE=${DEVICE:-cuda} STEPS=${STEPS:-60} OUT=${OUT:-runs/gpu_check} PYTHON=${PYTHON:-python}
cd "$(dirname "$0")/.."
# Otherwise a GPU multiplies float32 in fewer bits than a CPU, and takes all memory at once.
export JAX_DEFAULT_MATMUL_PRECISION=highest XLA_PYTHON_CLIENT_PREALLOCATE=false
# One device each.
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" XLA_FLAGS=

if ! found=$(JAX_PLATFORMS=$DEVICE "$PYTHON" -c 'import jax; print(jax.devices()[0].device_kind)' 2>/dev/null); then
    echo "gpu_check: JAX finds no device for DEVICE=$DEVICE. Install a driver and jax[cuda13]; what JAX says:" >&2
    echo "    JAX_PLATFORMS=$DEVICE $PYTHON -c 'import jax; jax.devices()'" >&2
    echo "gpu_check: DEVICE=cpu tries the check itself, without a GPU." >&2
    exit 4
fi
echo "gpu_check: $STEPS steps on the CPU, then on $DEVICE ($found)"
rm -rf "$OUT/reference" "$OUT/device"

run() {  # platform, folder
    JAX_PLATFORMS=$1 "$PYTHON" -m deploy.local.gpu_check sample --out "$2" && JAX_PLATFORMS=$1 "$PYTHON" -m deploy.local.launch --nodes 1 --timeout 600 \
        --tokenizer trainer/recipes/tiny_tokenizer --rewards trainer/recipes/tiny_rewards.toml \
        -- "$PYTHON" -m trainer.cli --reward-endpoint '{endpoint}' --recipe tiny --mesh fsdp=1 \
        --steps "$STEPS" --out "$2" --dump-rollouts && return
    echo "gpu_check: the run on $1 failed; see above." >&2
    exit 5
}

run cpu "$OUT/reference"
run "$DEVICE" "$OUT/device"
"$PYTHON" -m deploy.local.gpu_check compare "$OUT/reference" "$OUT/device"
