# What `make check-model` repeats: one run of SPIN over firmware-tests/sim/membership.pml.
# model NAME SECONDS WANT DEFINES..: WANT is "holds" (all states within the bounds were seen and no rule is broken) or
# "counterexample" (one is found; it is kept as $MODEL_KEEP/NAME.txt where that is set) or "searched" (not exhaustive: a
# minute, and bits instead of states, so that some are taken for others; no rule is broken). With -DLIVE among the
# defines: progress under weak fairness. SECONDS are of a core, so that a busy machine changes no outcome.
# MODEL_OPTIMIZE (-O1): how the search is compiled.
model() {
    name=$1 seconds=$2 want=$3; shift 3
    at=$scratch/model_$name; mkdir "$at"; cp firmware-tests/sim/membership.pml "$at"
    flags="-DSAFETY -DNOFAIR" options= store="-DCOLLAPSE -DMEMLIM=${MODEL_MIB:-4000}" bits=24
    [ "$want" != searched ] || { store=-DBITSTATE bits=31 options=-Q1; }
    case " $* " in *" -DLIVE "*) flags=-DNFAIR=3 options="-a -f" ;; esac
    (cd "$at" && spin -a "$@" membership.pml && ${CC:-gcc} -w ${MODEL_OPTIMIZE:--O1} $store $flags -o pan pan.c &&
        ulimit -t "$seconds" && exec ./pan -m400000 -w$bits $options) >"$at/out" 2>&1
    code=$?
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$at/out")
    if [ "$want" = searched ] && grep -q "errors: 0" "$at/out"; then ok "$name ($states states seen: not all)"
    elif [ $code -ne 0 ] || grep -q "Search not completed\|max search depth too small" "$at/out" && ! grep -q "assertion violated\|acceptance cycle" "$at/out"; then
        not_ok "$name" "not all states in $seconds s of a core, ${MODEL_MIB:-4000} MiB ($code): $(tail -1 "$at/out")"
    elif grep -q "errors: 0" "$at/out"; then
        [ "$want" = holds ] && ok "$name ($states states: all)" || not_ok "$name" "no counterexample in $states states"
    elif [ "$want" != counterexample ]; then
        not_ok "$name" "a counterexample"; (cd "$at" && spin -t "$@" membership.pml | sed -n 's/^ *\([0-9] .*\)/\1/p')
    else
        ok "$name (a counterexample)"
        [ -z "$MODEL_KEEP" ] || (echo "spin -a $*"; cd "$at" && spin -t "$@" membership.pml | sed -n 's/^ *\([0-9] .*\)/\1/p') >"$MODEL_KEEP/$name.txt"
    fi
}
