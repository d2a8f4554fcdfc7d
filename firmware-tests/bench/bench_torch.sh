#!/bin/sh
# A step of PyTorch over this library beside DistributedDataParallel's over Gloo: bench_torch.py says how.
# MODELS="mlp cnn transformer resnet50", RANKS="2 4", LINKS="memory sockets", ROUNDS=9; OPTIONS are further ones of
# bench_torch.py (--progress 0.0002).
BUILD=${BUILD:-build}
PATH=$PATH:/usr/bin
for python in /usr/bin/python3 python3; do
    "$python" -c 'import torch.distributed' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "skipped: no python3 here imports torch (Debian's package python3-torch)"; exit 0; }
set -- "$BUILD"/libgradientflow.so.[0-9]*
GF_LIBRARY=$(cd "$BUILD" && pwd)/${1##*/}
export GF_LIBRARY GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
version=$("$python" -c 'import torch; print(torch.__version__)')
echo "PyTorch $version, $(nproc --all) cores, load $(cut -d' ' -f1 /proc/loadavg), medians of ${ROUNDS:-9} rounds"
code=0
for ranks in ${RANKS:-2 4}; do
    for link in ${LINKS:-memory sockets}; do
        for model in ${MODELS:-mlp cnn transformer resnet50}; do
            rm -f "$scratch/store"
            case $link in sockets) how=--sockets ;; *) how= ;; esac
            # shellcheck disable=SC2086
            timeout -k 5 600 "$BUILD/gf-run" -n "$ranks" "$python" firmware-tests/bench/bench_torch.py \
                --model "$model" --rounds "${ROUNDS:-9}" --store "$scratch/store" $how ${OPTIONS:-} 2>"$scratch/said" ||
                { code=1; tail -n 5 "$scratch/said"; }
        done
    done
done
exit $code
