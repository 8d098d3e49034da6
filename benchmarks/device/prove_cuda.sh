#!/usr/bin/env bash
# Prove graphmill on one CUDA device in less than eight minutes; a table is printed last, all logs are in $OUT/prove.tgz,
# from which `python -m benchmarks.device.rows` makes rows. Exit 1 where a phase found something bad, failed or was cut off.
#
#   bash benchmarks/device/prove_cuda.sh                                          # every phase but conve and compile
#   BUDGET=290 bash benchmarks/device/prove_cuda.sh conve                         # ConvE on FB15k-237, alone (prove_conve.py)
#   LIMITS="suite=240 hgt=90" bash benchmarks/device/prove_cuda.sh card suite hgt # some, in this order, with other limits
#   PYTHON=.venv/bin/python DEVICE=cpu bash benchmarks/device/prove_cuda.sh       # the script itself: tiny sizes, no device
#
# What a bare machine needs:
# - The checkout as it is; the project need not be installed. torch, PyG, numpy, scipy, pyarrow, psutil, pyyaml, safetensors,
#   tqdm, pytest, pytest-timeout and pytest-xdist have to be there.
# - What else is imported and the machine lacks, as wheels in .whl/, by the machine's version of Python, here of 3.12:
#     python -m pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_17_x86_64 -d .whl \
#       pydantic==V pydantic-core==W annotated-types typing-inspection orjson      # W is the one that this pydantic asks for
# - For conve the folder FB15k-237 (4 MB): copied to .datasets/FB15k-237, with GRAPHMILL_DATASETS=$PWD/.datasets set there.
# .whl and .datasets are in no commit: copy them to the machine beside the checkout.
#
# numba is hidden from the CPU's reference runs (PROVE_NUMBA=1 shows it): compiling its loops on a bare machine takes minutes.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${ROOT:-$(git -C "$here" rev-parse --show-toplevel 2>/dev/null || pwd)}
cd "$root" || exit 2
back=${OUT:-$PWD/prove_out}; mkdir -p "$back"
export OUT; OUT=$(mktemp -d) # many small files and a cache: only one archive goes back
trap 'tar czf "$back/prove.tgz" -C "$OUT" --exclude numba .' EXIT
export DEVICE=${DEVICE:-cuda} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$root/src:$root${PYTHONPATH:+:$PYTHONPATH}" NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$OUT/numba}
python=${PYTHON:-python3}
mkdir -p "$OUT"
if compgen -G ".whl/*.whl" > /dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$OUT/numba/site" .whl/*.whl || exit 3
  export PYTHONPATH="$OUT/numba/site:$PYTHONPATH"
fi
budget=${BUDGET:-470}
started=$SECONDS
tiny=()
[ "$DEVICE" = cuda ] || tiny=(--tiny)

# phase, seconds at most: a phase that hangs or fails leaves the others their time. Without profile, the default phases fit
# the budget also where each takes all of its time. LIMITS sets others.
declare -A most=([card]=30 [resume]=120 [kernels]=120 [traces]=150 [oom]=90 [cancel]=60 [suite]=170 [hgt]=110 [plain]=75
  [systems]=85 [profile]=30 [conve]=600 [compile]=120)
for pair in ${LIMITS:-}; do most[${pair%%=*}]=${pair#*=}; done
# What is right or not is asked side by side; what takes time is measured alone, afterwards.
together=" resume kernels traces oom cancel suite "
phases=("$@")
[ ${#phases[@]} -gt 0 ] || phases=(card resume kernels traces oom cancel suite hgt plain systems profile)

one() { # PHASE SECONDS: its log, what it said and its exit code as files of $OUT
  local phase=$1 limit=$2 begin=$SECONDS log="$OUT/$1.log" code said
  # What these tests import needs no Dagster; the project's warning filters do.
  local test=("$python" -m pytest -q -o filterwarnings= -p no:cacheprovider --timeout 100 --tb=short --junitxml "$OUT/$phase.xml")
  case $phase in
    kernels) command=("${test[@]}" -m gpu tests/kernels/test_cuda.py tests/training/test_memory.py tests/training/test_machine.py) ;;
    suite) command=("${test[@]}" -m "gpu and not slow" -n "${JOBS:-8}" --dist worksteal tests/training/test_cuda.py) ;;
    *) command=("$python" -m benchmarks.device.prove_cuda "$phase" --device "$DEVICE" "${tiny[@]}") ;;
  esac
  PHASE_ENDS=$(($(date +%s) + limit)) timeout --kill-after 5 "$limit" "${command[@]}" > "$log" 2>&1
  code=$?
  # pytest ends with 5 where it has collected nothing and with 0 where all is skipped (the dry run)
  said=$(grep -E '^(RESULT|[0-9]+ (passed|failed|skipped)|=+ .*(passed|failed|skipped|error))' "$log" | tail -n 1 | cut -c1-150)
  [[ $code == 124 || $code == 137 ]] && said="cut off after ${limit} s; $said"
  echo "$phase|exit $code: ${said:-see $log}|$((SECONDS - begin))" > "$OUT/$phase.said"
  { [ "$code" -eq 0 ] || [ "$code" -eq 5 ]; } || touch "$OUT/failed"
  grep -E '^(ROW|FAILED|ERROR)' "$log" | cut -c1-230 | head -n 60
}

allowed() { # PHASE: seconds that it may take; 0 where no time is left
  local left=$((budget - (SECONDS - started))) limit=${most[$1]:-60}
  [ "$DEVICE" = cuda ] || limit=$((limit * 3)) # a dry run, on a machine with others
  [ "$limit" -le "$left" ] || limit=$left
  [ "$limit" -ge 15 ] && echo "$limit" || echo 0
}

started_together=0
for phase in "${phases[@]}"; do
  limit=$(allowed "$phase")
  if [ "$limit" -eq 0 ]; then echo "$phase|not run: no time left|0" > "$OUT/$phase.said"; continue; fi
  if [[ $together == *" $phase "* ]]; then
    one "$phase" "$limit" &
    started_together=1
  else
    [ "$started_together" -eq 1 ] && wait && started_together=0
    limit=$(allowed "$phase")
    if [ "$limit" -eq 0 ]; then echo "$phase|not run: no time left|0" > "$OUT/$phase.said"; continue; fi
    one "$phase" "$limit"
  fi
done
wait
failed=0; [ ! -e "$OUT/failed" ] || failed=1
echo
echo "== $DEVICE, $((SECONDS - started)) s in all"
for phase in "${phases[@]}"; do cat "$OUT/$phase.said"; done | awk -F'|' '{ printf "%-9s %4d s  %s\n", $1, $3, $2 }'
exit "$failed"
