# What the benchmarks beside other libraries share; run from the repository root with BUILD set.
BUILD=${BUILD:-build}
peers=$BUILD/peers
scratch=$(mktemp -d) || exit 1
trap 'kill $meet_pids 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
missing='' meet_pids='' failures=''

# failed LABEL: a turn, which is in no median
failed() { echo "# $1 failed: $(tail -n 1 "$scratch/turn.err")" >&2; failures="$failures $1"; }
# rows_keep BENCH WHERE UNIT FILE..: all samples, lines "LABEL KEY NUMBER", go to $ROWS for report.py, a
# JSON object for each label and key
rows_keep() {
    [ -n "${ROWS:-}" ] || return 0
    rows_bench=$1 rows_where=$2 rows_unit=$3; shift 3
    cat "$@" | awk -v bench="$rows_bench" -v at="$rows_where" -v unit="$rows_unit" 'NF == 3 {
            key = $1 " " $2; if (key in all) all[key] = all[key] ", " $3; else all[key] = $3 }
        END { for (key in all) { split(key, of, " ")
            printf "{\"bench\": \"%s\", \"where\": \"%s\", ", bench, at
            printf "\"label\": \"%s\", \"key\": \"%s\", ", of[1], of[2]
            printf "\"unit\": \"%s\", \"values\": [%s]}\n", unit, all[key] } }' | sort >>"$ROWS"
}
# Below the tables
notes_print() {
    for notes_label in $failures; do echo "$notes_label turns 1"; done | rows_keep failed "${0##*/}" turns -
    for notes_label in $missing; do echo "$notes_label turns 0"; done | rows_keep absent "${0##*/}" turns -
    [ -z "$missing" ] || printf '\nNot installed, so not among them: %s.\n' "$missing"
    [ -z "$failures" ] || printf '\nTurns that failed, so in no median: %s.\n' "$failures"
}

# made PROGRAM: it was compiled after its source and what both include were changed
made() {
    [ -x "$peers/$1" ] &&
        [ -z "$(find "firmware-tests/bench/$2" firmware-tests/bench/bench_peer.h -newer "$peers/$1")" ]
}
# Compiles what can be compiled and is not yet; `missing` names the rest.
peers_build() {
    mkdir -p "$peers"
    for floor in bound sockets; do
        made "bench_$floor" "bench_$floor.c" || cc -D_GNU_SOURCE -I. -O3 -march=native -o "$peers/bench_$floor" \
            "firmware-tests/bench/bench_$floor.c" || exit 1
    done
    for mpi in openmpi mpich; do
        if ! command -v "mpicc.$mpi" >/dev/null || ! command -v "mpirun.$mpi" >/dev/null; then
            rm -f "$peers/bench_$mpi"
            missing="$missing $mpi"
            continue
        fi
        made "bench_$mpi" bench_mpi.c ||
            "mpicc.$mpi" -I. -O3 -march=native -o "$peers/bench_$mpi" firmware-tests/bench/bench_mpi.c || missing="$missing $mpi"
    done
    # another prefix may be another library
    [ -z "${GLOO_PREFIX:-}" ] || rm -f "$peers/bench_gloo"
    made bench_gloo bench_gloo.cc ||
        c++ -I. ${GLOO_PREFIX:+-I"$GLOO_PREFIX/include" -L"$GLOO_PREFIX/lib" -Wl,-rpath,"$GLOO_PREFIX/lib"} -O3 \
            -march=native -o "$peers/bench_gloo" firmware-tests/bench/bench_gloo.cc -lgloo -pthread \
            2>"$scratch/gloo.err" || missing="$missing gloo"
    [ -z "${GLOO_PREFIX:-}" ] || [ -x "$peers/bench_gloo" ] || { cat "$scratch/gloo.err" >&2; exit 1; }
    rm -f "$peers/bench_ucc"
    [ -n "${UCC_PREFIX:-}" ] || { missing="$missing ucc"; return; }
    cc -D_GNU_SOURCE -I. -I"$UCC_PREFIX/include" -O3 -march=native -o "$peers/bench_ucc" \
        firmware-tests/bench/bench_ucc.c -L"$UCC_PREFIX/lib" -Wl,-rpath,"$UCC_PREFIX/lib" -lucc || exit 1
}

# ranks_meet RANKS PROGRAM OPTION..: on this host, with -w, -r and an empty folder in which they find each other, -d
ranks_meet() {
    meet_n=$1 meet_program=$2; shift 2
    meet_folder=$(mktemp -d "$scratch/meet.XXXXXX")
    for meet_i in $(seq 0 $((meet_n - 1))); do
        # shellcheck disable=SC2016
        timeout -k 5 "${LIMIT:-120}" sh -c "GF_RANK=$meet_i; ${pin:-}"' exec "$@"' sh "$peers/$meet_program" \
            -w "$meet_n" -r "$meet_i" -d "$meet_folder" "$@" &
        meet_pids="$meet_pids $!"
    done
    meet_code=0
    for meet_pid in $meet_pids; do wait "$meet_pid" || meet_code=1; done
    meet_pids=''
    return $meet_code
}

# PEERS="LABEL ..": those alone take part
wanted() { case " ${PEERS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac; }
# Elements of each tensor, one a line
counts_of_model() {
    sed -n 's/.*shape = \[\([0-9, ]*\)\].*/\1/p' "$1" | awk -F, '{n = 1; for (i = 1; i <= NF; i++) n *= $i; print n}'
}
counts_name() { awk '{n += $1} END {print NR " tensors, " 4 * n " bytes"}' "$1"; }
machine_print() {
    model=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)
    family=$(sed -n 's/^cpu family.*: //p' /proc/cpuinfo | head -n 1)
    number=$(sed -n 's/^model\t.*: //p' /proc/cpuinfo | head -n 1)
    echo "$(date +%Y-%m-%d), $(nproc) cores of $model (family $family model $number), load $(cut -d' ' -f1 /proc/loadavg) at the start."
}

# median FILE LABEL KEY: of the third fields; empty where there is none
median() {
    awk -v label="$2" -v key="$3" '$1 == label && $2 == key {print $3}' "$1" | sort -g |
        awk '{v[NR] = $1} END {if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'
}
size_name() {
    if [ "$1" -ge 1048576 ]; then echo "$(($1 / 1048576)) MiB"
    elif [ "$1" -ge 1024 ]; then echo "$(($1 / 1024)) KiB"
    else echo "$1 B"; fi
}
us() { awk -v us="${1:-}" 'BEGIN {if (us == "") print "-"; else printf(us < 100 ? "%.2f\n" : "%.0f\n", us)}'; }
ratio() {
    awk -v a="${1:-}" -v b="${2:-}" 'BEGIN {if (a == "" || b == "" || b == 0) print "-"; else printf "%.2f\n", a / b}'
}
# best FILE KEY LABEL..: "LABEL US" of the fastest
best() {
    best_file=$1 best_key=$2; shift 2
    for best_label in "$@"; do
        best_us=$(median "$best_file" "$best_label" "$best_key")
        [ -z "$best_us" ] || echo "$best_label $best_us"
    done | sort -g -k2 | head -n 1
}

# Of FILE, all but ours and what is no library
peers_of() { awk '{print $1}' "$1" | sort -u | grep -v -e '^ours' -e '^bound$' -e '^sockets$'; }
# peers_table FILE SIZES
peers_table() {
    labels=$(peers_of "$1") program=''
    ! grep -q '^ours-program ' "$1" || program=" program's | best / program's |"
    echo "| | ours | best peer | | of defaults | best / ours | defaults / ours | bound / ours |$program"
    echo "|---|---|---|---|---|---|---|---|${program:+---|---|}"
    for size in $2; do
        # shellcheck disable=SC2086
        all=$(best "$1" "$size" $labels) default=$(best "$1" "$size" openmpi mpich gloo gloo-ring)
        own=$(median "$1" ours "$size") bound=$(median "$1" bound "$size")
        staged=$(median "$1" ours-program "$size")
        [ -z "$program" ] || program=" $(us "$staged") | $(ratio "${all#* }" "$staged") |"
        echo "| $(size_name "$size") | $(us "$own") | $(us "${all#* }") | ${all% *} | $(us "${default#* }") |" \
            "$(ratio "${all#* }" "$own") | $(ratio "${default#* }" "$own") | $(ratio "$bound" "$own") |$program"
    done
}
# model_table FILE LIMIT: a step of a model beside the peers' three ways to sum its tensors, and what each peer took
model_table() {
    labels=$(peers_of "$1") own=$(median "$1" ours step) half=$(median "$1" ours-fp16 step)
    : >"$scratch/ways"
    echo "| limit | ours | of limit | ours fp16 | one by one | / ours | 25 MiB buckets | / ours | fused | / ours |" \
        "best / ours | / fp16 |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
    printf '| %s | %s | %s | %s |' "$(us "$2")" "$(us "$own")" "$(ratio "$2" "$own")" "$(us "$half")"
    for way in each buckets fused; do
        # shellcheck disable=SC2086
        top=$(best "$1" $way $labels)
        printf ' %s %s | %s |' "$(us "${top#* }")" "${top% *}" "$(ratio "${top#* }" "$own")"
        [ -z "$top" ] || echo "${top#* }" >>"$scratch/ways"
    done
    top=$(sort -g "$scratch/ways" | head -n 1)
    echo " $(ratio "$top" "$own") | $(ratio "$top" "$half") |"
    printf '\n| peer | one by one | 25 MiB buckets | fused |\n|---|---|---|---|\n'
    for label in $labels; do
        printf '| %s |' "$label"
        for way in each buckets fused; do printf ' %s |' "$(us "$(median "$1" "$label" $way)")"; done
        echo
    done
}
