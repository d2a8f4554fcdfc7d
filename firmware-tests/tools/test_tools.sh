#!/bin/sh
# What all tools have in common: exit codes, --help, --version, --quiet, GF_DEBUG, and how bash completes them.
. firmware-tests/support/shell.sh
scratch_config=$scratch/bad.cfg
printf 'exchange = { wire = "fp64"; };\n' >"$scratch_config"
# ends CODE NAME COMMAND..: by itself, with this code; 1 and 2 with a line on stderr and none on stdout
ends() {
    code_=$1 name_=$2; shift 2
    timeout -k 5 100 "$@" >"$scratch/out" 2>"$scratch/err"; got_=$?
    if [ $got_ -ne "$code_" ]; then not_ok "$name_" "exit $got_, not $code_: $(tail -n 1 "$scratch/err")"
    elif [ "$code_" -ne 0 ] && [ ! -s "$scratch/err" ]; then not_ok "$name_" "says nothing on stderr"
    elif [ "$code_" -eq 2 ] && [ -s "$scratch/out" ]; then not_ok "$name_" "says something on stdout"
    else ok "$name_"; fi
}

# ---- 2: the command line, whose reader is tools/test_check's; 1: the rest ----
for path in "$BUILD"/gf-*; do
    [ -f "$path" ] && [ -x "$path" ] || continue
    tool=${path##*/}
    ends 0 "${tool}_--help" "$path" --help
    check "${tool}_--help_says_how_it_is_called" grep -q "^usage: $tool " "$scratch/out"
    ends 0 "${tool}_-h" "$path" -h
    ends 0 "${tool}_--version" "$path" --version
    check "${tool}_--version_is_the_librarys" grep -Eq "^$tool [0-9]+\.[0-9]+\$" "$scratch/out"
    "$path" --completion >"$scratch/completion"
    check "${tool}_is_completed" bash -n "$scratch/completion"
    # shellcheck disable=SC2016
    bash -c '. "$1"; COMP_WORDS=("$2" --); COMP_CWORD=1; "_gf_${2#gf-}"; printf "%s\n" "${COMPREPLY[@]}"' bash \
        "$scratch/completion" "$tool" | sort >"$scratch/completed"
    "$path" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | sort >"$scratch/helped"
    check "${tool}_is_completed_by_the_options_of_its_help" cmp "$scratch/completed" "$scratch/helped"
    ends 2 "${tool}_unknown_option" "$path" --nonsense
    case $tool in
    gf-check) set -- "$scratch/none" ;;
    gf-coordinator) set -- --config "$scratch/none" ;;
    gf-perf)  set -- --config "$scratch/none" -n 1 ;;
    gf-plan)  set -- --model "$scratch/none" --gpus 1 ;;
    gf-run)   set -- -n 1 false ;;
    gf-trace) set -- "$scratch/none" ;;
    gf-train) set -- --config "$scratch/none" ;;
    *) not_ok "$tool" "has no row here" ;;
    esac
    if [ "$tool" = gf-run ]; then
        timeout 100 "$path" "$@" >"$scratch/out" 2>&1
        check gf-run_a_program_that_fails [ $? -eq 1 ]
    else ends 1 "${tool}_a_file_that_is_not_there" "$path" "$@"
    fi
done
echo 'job = { world_max = 1; };' >"$scratch/alone.cfg"
ends 0 gf-check_a_job_that_stays_alone "$BUILD/gf-check" "$scratch/alone.cfg"
ends 1 gf-check_a_bad_file "$BUILD/gf-check" "$scratch_config"
ends 1 gf-perf_a_bad_file "$BUILD/gf-perf" --config "$scratch_config"
ends 1 gf-train_a_bad_file "$BUILD/gf-train" --config "$scratch_config"
ends 2 gf-perf_a_bad_setting "$BUILD/gf-perf" --set exchange.wire=fp64
ends 2 gf-train_a_bad_setting "$BUILD/gf-train" --set exchange.wire=fp64
ends 2 gf-train_a_bad_wire "$BUILD/gf-train" --wire fp64
ends 2 gf-perf_sizes_that_contradict "$BUILD/gf-perf" -b 8K -e 4K
ends 1 gf-perf_a_model_that_is_not_there "$BUILD/gf-perf" --model "$scratch/none"
ends 1 gf-perf_a_place_that_cannot_be_written "$BUILD/gf-perf" -b 4 -e 4 --json /nonexistent/x
ends 2 gf-plan_unknown_mode "$BUILD/gf-plan" --modes nonsense
ends 2 gf-plan_options_that_contradict "$BUILD/gf-plan" --paper --all
ends 1 gf-plan_a_cluster_that_is_not_there "$BUILD/gf-plan" --cluster "$scratch/none"
ends 2 gf-run_without_a_program "$BUILD/gf-run" -n 2
ends 2 gf-check_without_a_file "$BUILD/gf-check"
ends 2 gf-trace_without_a_file "$BUILD/gf-trace"
# A number out of its range, and an option that is there twice.
for row in "gf-plan --gpus" "gf-perf --iters" "gf-train --steps"; do
    tool=${row%% *} option=${row##* }
    ends 2 "${tool}_out_of_range" "$BUILD"/$row 0
    check "${tool}_says_the_range" grep -q -- "$option 0: allowed" "$scratch/err"
    ends 2 "${tool}_twice" "$BUILD"/$row 1 "$option" 2
    check "${tool}_says_what_is_twice" grep -q -- "$option is given twice" "$scratch/err"
done

completes() { # WANTED WORD..: gf-perf's
    wanted_=$1; shift
    # shellcheck disable=SC2016
    got_=$("$BUILD/gf-perf" --completion | bash -c '. /dev/stdin; COMP_WORDS=(gf-perf "$@"); COMP_CWORD=$#
        _gf_perf; echo "${COMPREPLY[*]}"' bash "$@")
    [ "$got_" = "$wanted_" ] || { echo "completed to $got_"; return 1; }
}
check "values_are_completed" completes "float half bfloat16" --type ""
check "also_behind_a_letter" completes "half" -d h
check "also_behind_an_equals_sign" completes "bfloat16" --type = b
check "and_names" completes "--factor" --fac

# ---- how much is said ----
quiet() { "$@" >"$scratch/out" 2>"$scratch/err" && [ ! -s "$scratch/out" ] && [ ! -s "$scratch/err" ]; }
check "gf-check_--quiet" quiet "$BUILD/gf-check" config/local.cfg --quiet
check "gf-perf_--quiet_writes_its_files" quiet "$BUILD/gf-perf" -b 4 -e 4 -n 1 --quiet --csv "$scratch/csv"
check "and_they_are_whole" [ "$(wc -l <"$scratch/csv")" -eq 2 ]
check "gf-train_--quiet" quiet "$BUILD/gf-train" $small --steps 3 --quiet
ends 1 "gf-check_--quiet_says_what_is_wrong" "$BUILD/gf-check" "$scratch_config" --quiet
"$BUILD/gf-train" $small --steps 3 2>"$scratch/err" >"$scratch/out"
check "progress_says_how_long_it_will_take" grep -Eq "step +3/3 .* 0:00 left" "$scratch/err"
check "the_table_names_network_and_shared_memory" [ "$(grep -cE '^  (network|shared memory) ' "$scratch/out")" -eq 2 ]
debug() { # WORD [TEXT]
    GF_DEBUG=$1 "$BUILD/gf-run" -n 2 "$BUILD/gf-perf" -b 4 -e 4 -n 1 2>&1 >/dev/null |
        grep -cE "^\[[01]\] gf-perf: (info|debug): ${2:-}"
}
check "the_library_says_nothing_by_itself" [ "$(debug '')" -eq 0 ]
check "nor_with_another_word" [ "$(debug nonsense)" -eq 0 ]
for word in info debug; do check "GF_DEBUG=${word}_says_more" [ "$(debug $word 'rank . of 2: open over')" -eq 2 ]; done
finish
