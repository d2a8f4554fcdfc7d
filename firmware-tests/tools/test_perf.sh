#!/bin/sh
# gf-perf on real ranks: each operation and type measured and checked, the files it writes, its pass marks, what it
# refuses, how it fails, a limits file that gf-check takes, and a replayed model.
# suite: alone
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C
run=$BUILD/gf-run perf=$BUILD/gf-perf
small="-b 4 -e 40000 -f 100 -n 3 -w 1"

# quiet COMMAND..: its output is in $scratch/out, and shown where it fails
quiet() { "$@" >"$scratch/out" 2>&1 || { cat "$scratch/out"; return 1; }; }
measured() { quiet timeout -k 5 100 "$run" -n 2 "$perf" "$@"; } # 2 ranks end well
number='[0-9]+(\.[0-9]+)?'
# A row of the JSON file, to the letter
row_of() {
    times=$(for t in time min mean p50 p95 p99; do printf '"%s_us": %s, ' $t "$number"; done)
    printf '^    \\{"op": "%s", "type": "%s", "redop": "[a-z]+", "bytes": %s, "count": %s, ' "$1" "$2" "$3" "$4"
    printf '"samples": [0-9]+, %s"algbw": %s, "busbw": %s, "wrong": 0, "out_of_place_us": %s, ' "$times" "$number" "$number" "$number"
    printf '"algorithm": "%s"\\},?$' "$5"
}
has_row() { grep -Eq "$(row_of "$@")" "$scratch/json" || { cat "$scratch/json"; return 1; }; }
# Brackets and quotes in pairs, commas between rows and not behind the last
is_json() {
    awk '{ text = text $0 } END {
        gsub(/ /, "", text); gsub(/"[^"]*"/, "0", text); gsub(/[0-9]+(\.[0-9]+)?/, "0", text)
        for (n = 1; n > 0;) {
            n = gsub(/0:0/, "p", text); n += gsub(/p,p/, "p", text); n += gsub(/[{]p[}]/, "0", text)
            n += gsub(/\[0,0/, "[0", text); n += gsub(/\[0\]/, "0", text)
        }
        exit text != "0" }' "$1" || { cat "$1"; return 1; }
}
spoiled_is_no_json() {
    is_json "$1" && ! sed 's/}$/},/' "$1" | is_json /dev/stdin >/dev/null && ! sed '$d' "$1" | is_json /dev/stdin >/dev/null
}

# ---- every operation and type ----
for op in allreduce broadcast reduce_scatter allgather; do
    case $op in allreduce) types="float half bfloat16" ;; broadcast) types=half ;; *) types=float ;; esac
    for type in $types; do
        bytes=400 size=4
        [ $type = float ] || size=2
        check "${op}_${type}_is_measured_and_right" measured $small --op $op -d $type --json "$scratch/json"
        check "${op}_${type}_has_its_rows" has_row $op $type $bytes $((bytes / size)) direct
        check "${op}_${type}_has_each_size" [ "$(grep -c '"op"' "$scratch/json")" -eq 3 ]
    done
done
check barrier_has_one_row measured $small --op barrier --json "$scratch/json"
check barrier_carries_nothing has_row barrier float 0 0 direct
# Without shared memory auto chooses by size and operation.
check messages_are_measured measured $small --set link.private_memory=true --json "$scratch/json"
check messages_have_their_row has_row allreduce float 400 100 doubling
check barrier_of_messages measured $small --op barrier --set link.private_memory=true --json "$scratch/json"
check barrier_of_messages_has_a_row has_row barrier float 0 0 doubling
for algorithm in ring halving doubling tree server direct; do
    check "${algorithm}_is_named_in_its_row" measured -b 1000 -e 1000 -n 3 --algorithm $algorithm --json "$scratch/json"
    check "${algorithm}_is_right" has_row allreduce float 1000 250 $algorithm
done
check memory_of_the_program_is_right measured -b 1000 -e 1000000 -f 1000 -n 3 --memory program --json "$scratch/json"
check memory_of_the_program_is_staged has_row allreduce float 1000000 250000 direct
check three_ranks_and_a_size_that_no_rank_can_share \
    sh -c "timeout 100 '$run' -n 3 '$perf' -b 4 -e 100 -f 5 -n 3 --algorithm ring >/dev/null"

# ---- files ----
check csv_and_json_together measured $small --json "$scratch/json" --csv "$scratch/csv"
check the_file_is_json spoiled_is_no_json "$scratch/json"
check json_says_version_world_and_hash grep -Eq \
    '"header": \{"version": "[0-9]+\.[0-9]+", "world": 2, "config_hash": "0x[0-9a-f]{16}"' "$scratch/json"
check csv_has_a_head_and_a_line_a_size [ "$(wc -l <"$scratch/csv")" -eq 4 ]
check csv_lines_have_as_many_fields_as_the_head [ "$(awk -F, '{print NF}' "$scratch/csv" | sort -u | wc -l)" -eq 1 ]
check the_table_says_the_same [ "$(grep -c '     0$' "$scratch/out")" -eq 3 ]
# The columns of nccl-tests, as scripts take them: 13 fields, and what the last lines say.
columns=$(awk '!/^#/ && NF {print NF, $3, $4, $5, $9 + $13}' "$scratch/out" | sort -u)
check rows_have_the_columns_of_nccl_tests [ "$columns" = "13 float sum -1 0" ]
check bandwidth_is_bytes_over_time awk '!/^#/ && $1 == 40000 {r = $1 / $6 / 1000 / $7; s = $1 / $10 / 1000 / $11}
    END {exit !(r > 0.9 && r < 1.1 && s > 0.9 && s < 1.1)}' "$scratch/out"
mean_of_rows() {
    awk '!/^#/ && NF {s += $8 + $12; n += 2} /Avg bus/ {d = $NF - s / n; exit !(n > 0 && d * d < 0.0001)}' "$1"
}
check the_average_line_is_the_mean_of_both_places mean_of_rows "$scratch/out"
check nothing_was_wrong grep -qx '# Out of bounds values : 0 OK' "$scratch/out"
hash_of() { sed -n 's/.*"config_hash": "\(0x[0-9a-f]*\)".*/\1/p' "$scratch/json"; }
first=$(hash_of)
measured $small --set link.window=4 --json "$scratch/json"
check another_configuration_has_another_hash [ -n "$first" -a "$first" != "$(hash_of)" ]
check settings_may_be_many measured -b 4 -e 4 --set link.private_memory=true --set link.idle=yield --set=link.window=2
check sizes_have_units measured -b 4K -e 1M -f 256 -n 2 --json "$scratch/json"
check units_are_of_1024 has_row allreduce float 1048576 262144 direct
check without_a_check_nothing_is_claimed measured -b 4 -e 4 -n 2 -c 0 --json "$scratch/json" --csv "$scratch/csv"
check that_is_said grep -Eq ' N/A$' "$scratch/out"
check in_json_too grep -q '"wrong": null,' "$scratch/json"
check and_in_csv grep -Eq '^allreduce,.*,,direct,0x' "$scratch/csv"
# Every reduction by every algorithm: test_reduction.
for how in "min -d half --algorithm halving" "sum --algorithm ring" "max -d bfloat16"; do
    # shellcheck disable=SC2086
    check "${how%% *}_is_right" measured -b 4 -e 40000 -f 100 -n 2 -w 0 -o $how
done
check it_is_named grep -Eq 'bfloat16     max      -1' "$scratch/out"
check a_root_is_named_and_right measured -b 400 -e 400 -n 2 --op broadcast -r 1
check in_its_column grep -Eq 'float    none       1' "$scratch/out"
refused a_root_that_is_none "root is no rank" "$run" -n 2 "$perf" -b 4 -e 4 --op broadcast -r 2
refused a_reduction_of_a_broadcast "redop is for allreduce" "$perf" --op broadcast -o max
refused a_letter_of_nccl_tests_that_means_something_else "unknown option -a" "$perf" -a 1

# ---- pass marks and failures: exit 1 ----
refused bandwidth_below_the_mark_fails "at 40000 bytes, --min-busbw asks for 100000" \
    "$run" -n 2 "$perf" $small --min-busbw 100000
check bandwidth_above_the_mark_passes measured $small --min-busbw 0.0000001
check rows_are_written_all_the_same sh -c "! '$run' -n 2 '$perf' $small --min-busbw 1e5 --json '$scratch/json' 2>/dev/null &&
    [ \$(grep -c '\"op\"' '$scratch/json') -eq 3 ]"
refused a_rank_that_never_comes_is_a_timeout "cannot open: GF_ERR_TIMEOUT" \
    env GF_RANK=0 GF_WORLD=2 GF_ADDRESS=127.0.0.1:7973 "$perf" --set rendezvous.join_timeout=300ms
# A failure stands once, of the library's log and of what the program itself says together.
once() {
    [ "$(timeout 100 env GF_RANK=1 GF_WORLD=2 GF_ADDRESS=127.0.0.1:7974 "$@" 2>&1 |
        grep -c 'cannot be reached, for')" = 1 ]
}
check a_failure_stands_once once "$perf" --set rendezvous.join_timeout=300ms
check nor_does_gf_train_repeat_it once "$BUILD/gf-train" --set rendezvous.join_timeout=300ms
printf 'rendezvous = { join_timeout = "300 ms"; };\n' >"$scratch/short.cfg"
check nor_an_example once "$BUILD/language" --config "$scratch/short.cfg"
refused a_rank_that_dies_ends_the_others "a measurement failed|cannot open" \
    "$run" -n 2 sh -c "set -- --seconds 3600; if [ \$GF_RANK = 1 ]; then timeout -s KILL 2 '$perf' \"\$@\"; sleep 9; fi
        exec '$perf' \"\$@\""
refused files_that_cannot_be_written_are_found_first "gf-perf: /nonexistent/x: open: No such file" \
    "$run" -n 2 "$perf" --seconds 3600 --json /nonexistent/x
refused a_csv_likewise "gf-perf: /nonexistent/x: open: No such file" \
    "$run" -n 2 "$perf" --seconds 3600 --csv /nonexistent/x
refused limits_likewise "gf-perf: /nonexistent/x: open: No such file" \
    "$run" -n 2 "$perf" --seconds 3600 --tune /nonexistent/x

# ---- alone ----
"$perf" -b 4K -e 4K -n 1 >/dev/null 2>"$scratch/out"
check a_rank_alone_says_that_it_measures_no_network said '^gf-perf: warning: this is the only rank'
"$run" -n 2 "$perf" -b 4K -e 4K -n 1 >/dev/null 2>"$scratch/out"
check and_ranks_with_others_do_not test ! -s "$scratch/out"
# ---- bad input, alone ----
refused smallest_above_largest "min-bytes is above --max-bytes" "$perf" -b 8K -e 4K
refused factor_of_1 "factor 1: allowed is a whole number from 2" "$perf" -f 1
refused more_than_user_bytes_may_be "bytes 64G: allowed is a size" "$perf" -b 64G -e 64G
refused no_size "min-bytes x: allowed is a size" "$perf" -b x
refused below_an_element "min-bytes 2: allowed is a size" "$perf" -b 2
refused no_samples "iters 0: allowed" "$perf" -n 0
refused too_many_samples "iters 2001: allowed" "$perf" -n 2001
refused unknown_operation "op reduce: allowed is allreduce.broadcast" "$perf" --op reduce
refused unknown_type "type double: allowed is float\|half\|bfloat16" "$perf" -d double
refused unknown_algorithm "exchange.algorithm" "$perf" --algorithm fastest
refused check_is_0_or_1 "check 2: allowed" "$perf" -c 2
refused unknown_letter "unknown option -z" "$perf" -z 1
refused letter_without_value "needs a value" "$perf" -b
refused setting_without_value "GROUP.KEY=VALUE" "$perf" --set link.window
refused unknown_setting "link.nonsense" "$perf" --set link.nonsense=1
refused second_setting_is_bad "link.window" "$perf" --set link.idle=spin --set link.window=x
refused no_such_configuration "none: cannot be opened" "$perf" --config "$scratch/none"
refused no_such_model "none: cannot be opened" "$perf" --model "$scratch/none"
refused compute_without_a_model "needs --model" "$perf" --compute-ms 5
refused model_with_sizes "the model says operation and sizes" "$perf" --model config/models/nin.cfg -b 4K
refused model_with_a_type "leave --op, --type" "$perf" --model config/models/nin.cfg -d half
refused model_on_a_gpu "leave device.driver out" "$perf" --model config/models/nin.cfg --set device.driver=cuda
refused model_with_tune "give one of them" "$perf" --model config/models/nin.cfg --tune x
refused tune_of_an_algorithm "leave --op and --algorithm out" "$perf" --tune x --algorithm ring
refused tune_in_the_programs_memory "leave --device cuda, --model and --tune out" "$perf" --tune x --memory program
refused tune_with_json "leave --json" "$perf" --tune x --json y
for setting in exchange.average=ranks sparse.enabled=true; do
    refused "model_of_${setting%%=*}" "give --check 0" "$perf" --model config/models/nin.cfg --set $setting
done
printf 'tensors = ( { name = "a"; shape = [10]; } );\n' >"$scratch/flat.cfg"
refused schedule_without_flops "the model has no flops" "$perf" --model "$scratch/flat.cfg" --compute-ms 5
refused ranks_with_other_sizes "user_bytes" "$run" -n 2 sh -c \
    "[ \$GF_RANK = 0 ] || exec '$perf' -b 4 -e 8; exec '$perf' -b 4 -e 800"

# ---- limits for auto ----
check tune_measures measured --tune "$scratch/limits.cfg" -b 64 -e 16K -f 4 --seconds 0.02
check its_file_is_a_configuration sh -c "timeout 100 '$BUILD/gf-check' '$scratch/limits.cfg' >'$scratch/checked'"
limit_of() { sed -n "s/^ *$1 = \"\([0-9]*\) B\";/\1/p" "$scratch/limits.cfg"; }
doubling=$(limit_of doubling_max_bytes) halving=$(limit_of halving_max_bytes)
check limits_are_in_order [ "${doubling:-9}" -ge 1 -a "${halving:-0}" -ge "${doubling:-9}" ]
check gf_perf_takes_its_own_file measured -b 64 -e 64 -n 2 --config "$scratch/limits.cfg"

# ---- a model ----
cat >"$scratch/model.cfg" <<'EOF'
tensors = (
    { name = "last"; shape = [1000]; flops = [1000000L, 2000000L]; },
    { name = "empty"; shape = [0]; },
    { name = "half"; shape = [33]; type = "fp16"; },
    { name = "first"; shape = [300, 700]; flops = [1000000L, 1000000L]; } );
EOF
check model_is_replayed measured --model "$scratch/model.cfg" -n 3 --compute-ms 40 --json "$scratch/json"
check model_has_a_row has_row step float 844132 211033 direct
check model_is_json is_json "$scratch/json"
time_us=$(sed -n 's/.*"time_us": \([0-9]*\).*/\1/p' "$scratch/json")
exposed_us=$(sed -n 's/.*"exposed_us": \([0-9]*\).*/\1/p' "$scratch/json")
check a_step_lasts_as_long_as_its_computing [ "${time_us:-0}" -ge 40000 ]
check exposed_is_what_lies_beyond [ $((time_us - 40000 - exposed_us)) -ge -1 -a $((time_us - 40000 - exposed_us)) -le 1 ]
if command -v python3 >/dev/null; then
    strange=$scratch/$(printf 'a"b\\\303\274\377\001').cfg
    cp "$scratch/model.cfg" "$strange"
    check a_model_of_any_name measured --model "$strange" -n 2 --json "$scratch/json"
    check is_named_in_json python3 -c 'import json, sys
found = json.load(open(sys.argv[1], encoding="utf-8"))
assert found["header"]["model"].endswith("/a\"b\\\u00fc\\xff\\x01.cfg")' "$scratch/json"
else skip a_model_of_any_name "there is no python3"; fi
check model_on_a_16_bit_wire measured --model "$scratch/model.cfg" -n 2 --set exchange.wire=fp16 --json "$scratch/json"
check its_type_is_the_wires has_row step half 844132 211033 direct
check model_of_each_algorithm sh -c "for a in ring doubling tree server direct; do
    timeout 100 '$run' -n 2 '$perf' --model '$scratch/model.cfg' -n 2 --algorithm \$a >/dev/null || exit 1; done"
check sparse_model_without_a_check measured --model config/models/nin.cfg -n 2 -c 0 --set sparse.enabled=true
printf 'tensors = ( { name = "a"; shape = [400, 1000]; type = "bf16"; } );\n' >"$scratch/bf16.cfg"
check sparse_model_of_16_bits measured --model "$scratch/bf16.cfg" -n 2 -c 0 --set sparse.enabled=true
check and_no_step_is_skipped sh -c "! grep skipped '$scratch/out'"
check model_with_a_loss_scale measured --model "$scratch/model.cfg" -n 2 --set loss_scale.enabled=true
check model_with_an_optimizer measured --model "$scratch/model.cfg" -n 2 --config config/local.cfg

# ---- other launchers and hosts ----
if command -v mpirun.openmpi >/dev/null; then
    check under_open_mpi quiet timeout 100 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 \
        -x GF_ADDRESS=127.0.0.1:7974 "$perf" -b 4 -e 4 -n 2
else
    skip under_open_mpi "mpirun.openmpi is not installed"
fi
. firmware-tests/support/net.sh
net_suite in_network_namespaces 2
net_config >"$scratch/net.cfg"
check in_network_namespaces quiet net_run 100 "$perf" --config "$scratch/net.cfg" -b 4 -e 40000 -f 100 -n 3 -d half
finish
