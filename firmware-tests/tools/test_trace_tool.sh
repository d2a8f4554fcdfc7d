#!/bin/sh
# gf-train --trace and gf-trace: a real run of two ranks becomes words and JSON; files that are no traces,
# cut, damaged or of different runs are refused in one line.
set -u
. firmware-tests/support/shell.sh
export LC_ALL=C OPENBLAS_NUM_THREADS=1
t=$scratch/t steps=30

# train FILE [OPTION..]
train() {
    file=$1; shift
    timeout 100 "$BUILD/gf-run" -n 2 "$BUILD/gf-train" $small --algorithm halving --steps $steps --trace "$file" "$@" \
        >"$scratch/log" 2>&1 || { cat "$scratch/log"; return 1; }
}
tell() { timeout 100 "$BUILD/gf-trace" "$@" >"$scratch/out" 2>"$scratch/err"; }
# said PATTERN: a line of the summary
said() { grep -Eq "$1" "$scratch/out" || { cat "$scratch/out" "$scratch/err"; return 1; }; }
# refused PATTERN FILE..: exit 1 and one line on stderr, nothing on stdout
refused() {
    pattern=$1; shift
    tell "$@"; code=$?
    [ $code -eq 1 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" -eq 1 ] &&
        grep -q "$pattern" "$scratch/err" || { echo "exit $code"; cat "$scratch/out" "$scratch/err"; return 1; }
}
# spoil FILE OFFSET OCTAL..: a copy in $scratch/bad with these bytes there
spoil() {
    cp "$1" "$scratch/bad"; at=$2; shift 2
    for byte in "$@"; do
        printf "\\$byte" | dd of="$scratch/bad" bs=1 seek="$at" conv=notrunc 2>/dev/null
        at=$((at + 1))
    done
}
# A number of the file, 4 or 8 bytes.
number() { od -An -t"u$3" -j"$2" -N"$3" "$1" | tr -d ' '; }
count() { grep -c "$1" "$2"; }

check two_ranks_train train "$t"
check each_rank_leaves_a_file [ "$(ls "$t".* | wc -l)" -eq 2 ]
check no_part_is_left_behind [ "$(ls "$scratch" | grep -c part)" -eq 0 ]
records=$(number "$t.0" 32 8)
check every_step_has_buffer_vote_and_wait [ "$records" -ge $((3 * steps)) ]
check its_size_is_the_formats [ "$(wc -c <"$t.0")" -eq $((128 + 2 * 48 + 64 * records)) ]

check summary tell "$t.0" "$t.1" --json "$scratch/json"
check summary_counts_ranks_and_steps said "^trace +2 of 2 ranks, steps 1 to $steps\$"
check summary_says_what_was_hidden said '^hidden +[0-9]+ % of the exchange lay behind computing: [0-9.]+ ms a step'
check summary_says_what_was_exposed said '^exposed +buffer 0: linear.weight and 1 more \(31\.4 KB, [a-z]+\): .* ms a step'
check summary_says_who_was_late said '^late +rank [01]: the last to begin in [0-9]+ % of 60 exchanges'
check summary_has_a_row_a_rank [ "$(count '^rank [01] ' "$scratch/out")" -eq 2 ]
check one_clock_needs_no_aligning [ "$(count '^clocks' "$scratch/out")" -eq 0 ]

for rank in 0 1; do
    for kind in wait vote buffer; do
        check "json_has_every_${kind}_of_rank_$rank" \
            [ "$(grep -c "\"cat\":\"$kind\",\"ph\":\"X\",\"pid\":$rank," "$scratch/json")" -eq $steps ]
    done
    check "json_names_rank_$rank" grep -q "\"process_name\",\"ph\":\"M\",\"pid\":$rank,.*rank $rank on" "$scratch/json"
done
if command -v python3 >/dev/null; then
    check json_is_json python3 -c 'import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
assert len(events) > 100 and all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")' "$scratch/json"
    check json_threads_have_names_and_spans_that_do_not_cross python3 -c 'import collections, json, sys
threads, names, owners = collections.defaultdict(list), set(), {}
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] == "X": threads[e["pid"], e["tid"]].append((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)))
    if e["name"] == "thread_name": names.add((e["pid"], e["tid"]))
    if "tid" in e: assert owners.setdefault(e["tid"], e["pid"]) == e["pid"], "a thread of two processes"
assert names == set(threads) and len(names) >= 4
for spans in threads.values():
    spans.sort()
    for a, b in zip(spans, spans[1:]): assert b[0] >= a[1] - 1, (a, b)' "$scratch/json"
    check json_has_arrows_between_the_ranks_that_lie_in_spans python3 -c 'import collections, json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
spans = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X": spans[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
begins = {e["id"]: e for e in events if e["ph"] == "s"}
ends = {e["id"]: e for e in events if e["ph"] == "f"}
assert len(begins) >= 50 and set(begins) == set(ends)
for i in begins:
    assert begins[i]["pid"] != ends[i]["pid"] and begins[i]["ts"] <= ends[i]["ts"]
    for e in begins[i], ends[i]:
        assert any(a - 0.002 <= e["ts"] <= b + 0.002 for a, b in spans[e["pid"], e["tid"]]), e' \
        "$scratch/json"
    check json_counts_bytes_in_flight_down_to_0 python3 -c 'import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
for rank in 0, 1:
    c = [e["args"]["bytes in flight"] for e in events if e["ph"] == "C" and e["pid"] == rank and "bytes" in e["name"]]
    assert min(c) == 0 and c[-1] == 0 and max(c) >= 4 * 7850, (min(c), max(c))
    s = [e["args"]["loss scale"] for e in events if e["ph"] == "C" and e["pid"] == rank and "loss" in e["name"]]
    assert s == [1], s' "$scratch/json"
else
    for name in json_is_json json_threads json_has_arrows json_counts_bytes; do
        skip $name "there is no python3"
    done
fi
check one_rank_alone tell "$t.1"
check one_rank_says_for_whom_it_waited said '^late +rank 1 waited (longest for rank 0|for nobody)'

# ---- checkpoints, and a loss scale that grows ----
check a_run_with_checkpoints train "$scratch/c" --checkpoint "$scratch/state" --checkpoint-every 10 --wire fp16 \
    --set loss_scale.enabled=true --set loss_scale.growth_interval=8
check its_summary tell "$scratch/c.0" "$scratch/c.1" --json "$scratch/json"
check it_says_what_they_took said '^saved +6 checkpoints, [0-9.]+ ms each$'
check json_has_them [ "$(count '"cat":"checkpoint"' "$scratch/json")" -eq 6 ]
check json_has_the_loss_scales [ "$(grep '"loss scale","ph":"C","pid":0' "$scratch/json" | wc -l)" -ge 3 ]

# The same run, rank 1 on a host whose clock is 2^32 ns (4.3 s) ahead.
moved=$scratch/moved
# shellcheck disable=SC2016
perl -0777 -ne 'my ($head, $rest) = (substr($_, 0, 128 + 96), substr($_, 128 + 96));
    for (my $at = 0; $at < length $rest; $at += 64) {
        for my $o (0, 8) { substr($rest, $at + $o, 8) = pack "Q<", unpack("Q<", substr($rest, $at + $o, 8)) + 2**32; }
    }
    print $head, $rest' "$t.1" >"$moved" 2>/dev/null
if [ -s "$moved" ]; then
    check another_run_on_the_same_clock refused 'contradict each other in time' "$t.0" "$moved"
    spoil "$moved" 64 170
    cp "$scratch/bad" "$moved"
    check another_clock_is_aligned tell "$t.0" "$moved" --json "$scratch/json"
    check another_clock_is_said said '^clocks +several; aligned by their exchanges to within [0-9]+\.[0-9]+ ms$'
    check the_vote_of_both_clocks_is_at_one_time sh -c 'for r in 0 1; do
        grep "\"cat\":\"vote\",\"ph\":\"X\",\"pid\":$r," "$1" | sed -n "15s/.*\"ts\":\([0-9]*\).*/\1/p"; done |
        awk "NR == 1 {a = \$1} NR == 2 {d = \$1 - a} END {exit !(NR == 2 && d < 1000000 && d > -1000000)}"' \
        sh "$scratch/json"
else
    skip another_clock_is_aligned "there is no perl"
fi

# The same run, had a regroup after step 15 gone back to step 11, 4.3 s later; CUT leaves out what was before it.
# shellcheck disable=SC2016
again() { # RANK CUT: as $scratch/again.RANK
    perl -0777 -ne 'BEGIN {$cut = shift} my ($head, $rest, $kept) = (substr($_, 0, 128 + 96), substr($_, 128 + 96), "");
        for (my $at = 0; $at < length $rest; $at += 64) {
            my ($begin, $end, $step) = unpack "Q<3", substr($rest, $at, 64);
            next if $step <= $cut;
            ($begin, $end, $step) = ($begin + 2**32, $end + 2**32, $step - 5) if $step > 15;
            $kept .= pack("Q<3", $begin, $end, $step) . substr($rest, $at + 24, 40);
        }
        substr($head, 32, 8) = pack "Q<", length($kept) / 64;
        print $head, $kept' "$2" "$t.$1" >"$scratch/again.$1" 2>/dev/null
}
again 0 0
if [ -s "$scratch/again.0" ]; then
    tell "$t.0"; sed -n '/^rank 0/p' "$scratch/out" | cut -c 21- >"$scratch/once"
    check a_run_that_went_back tell "$scratch/again.0"
    sed -n '/^rank 0/p' "$scratch/out" | cut -c 21- >"$scratch/twice"
    check takes_as_long_a_step cmp "$scratch/once" "$scratch/twice"
    again 1 15
    check a_rank_that_came_back tell "$scratch/again.0" "$scratch/again.1"
else
    skip a_run_that_went_back "there is no perl"
fi

# The same run, had rank 1 always begun as late as it could, just before the first end: then it is the late one.
# shellcheck disable=SC2016
perl -0777 -e 'local $/; my (%end, @files);
    for my $path (@ARGV) { open my $in, "<:raw", $path or die; push @files, scalar <$in>; }
    for my $f (0, 1) {
        for (my $at = 128 + 96; $at < length $files[$f]; $at += 64) {
            my ($begin, $end, $step, $bytes, $operation, $algorithm, $buffer) = unpack "Q<4 L<3", substr($files[$f], $at, 64);
            my $key = "$step $operation $buffer";
            if ($f == 0) { $end{$key} = $end; next; }
            next unless (($operation == 2) || ($operation == 3)) && defined $end{$key};
            my $late = (($end{$key} < $end) ? $end{$key} : $end) - 1;
            substr($files[1], $at, 8) = pack "Q<", $late if $late > $begin;
        }
    }
    print $files[1]' "$t.0" "$t.1" >"$scratch/late" 2>/dev/null
if [ -s "$scratch/late" ]; then
    check a_rank_that_is_late tell "$t.0" "$scratch/late"
    check it_is_named said '^late +rank 1: the last to begin in (9[0-9]|100) % of 60 exchanges'
else
    skip it_is_named "there is no perl"
fi

# Rank 1 stops in the middle of a long run, once it has saved a step: rank 0 runs into the deadline while it waits, and
# its trace says where.
stop_early() {
    timeout 100 "$BUILD/gf-run" -n 2 sh -c '[ $GF_RANK = 1 ] || exec "$@"
            "$@" & run=$!; until [ -s "$0.1" ]; do sleep 0.02; done
            kill -STOP $run; sleep 20; kill -KILL $run' "$scratch/stops" \
        "$BUILD/gf-train" $small --steps 1000000 --set exchange.timeout=1s --trace "$scratch/f" \
        --checkpoint "$scratch/stops" >"$scratch/log" 2>&1
    [ $? -eq 1 ] || { cat "$scratch/log"; return 1; }
}
check a_run_in_which_a_rank_stops_fails stop_early
check the_trace_of_a_failed_run tell "$scratch/f.0"
check it_says_where_the_rank_was said '^failed +rank 0, step [0-9]+, [a-z]+: GF_ERR_TIMEOUT$'

check missing_file refused 'No such file' "$scratch/none"
check folder refused 'is a directory; allowed is a regular file' "$scratch"
: >"$scratch/bad"
check empty_file refused '0 bytes are too few' "$scratch/bad"
check foreign_file refused 'is no trace' tools/trace/trace.h
# Names of tensors (from byte 128) and hosts (from byte 104) may hold anything. named WHAT PLAIN JSON OCTAL..: of a
# tensor whose name has these bytes the words have PLAIN, the file JSON
named() {
    of=$1 plain=$2 json=$3; shift 3
    spoil "$t.0" 128 "$@" 0
    check "name_with_$of" tell "$scratch/bad" --json "$scratch/named"
    check "words_have_$of" grep -qF "buffer 0: $plain and 1 more" "$scratch/out"
    check "json_has_$of" grep -qF "\"name\":\"buffer 0: $json and 1 more\"" "$scratch/named"
    command -v python3 >/dev/null && check "json_with_$of" python3 -c 'import json, sys
json.loads(open(sys.argv[1], "rb").read().decode("utf-8"))' "$scratch/named"
}
named umlauts 'äß' 'äß' 303 244 303 237
named latin1 '\xe4\xf6' '\\xe4\\xf6' 344 366
named quotes_and_backslash 'a"\b' 'a\"\\b' 141 42 134 142
named a_terminals_codes '\x1b[1m\x0a\xc2\x9b' '\\x1b[1m\\x0a\\xc2\\x9b' 33 133 61 155 12 302 233
spoil "$t.0" 104 150 42 344 303 244 0
check host_with_any_byte tell "$scratch/bad" --json "$scratch/named"
check json_has_that_host grep -qF '"rank 0 on h\"\\xe4ä"' "$scratch/named"

head -c 700 "$t.0" >"$scratch/bad"
check cut_file refused 'cut or damaged' "$scratch/bad"
{ cat "$t.0"; echo; } >"$scratch/bad"
check longer_file refused 'cut or damaged' "$scratch/bad"
spoil "$t.0" 8 2
check newer_version refused 'version 2 with records of 64 bytes' "$scratch/bad"
spoil "$t.0" 32 377 377 377 377 377 377 377 377
check huge_count refused 'cut or damaged' "$scratch/bad"
spoil "$t.0" 35 4
check overflowing_count refused 'cut or damaged' "$scratch/bad"
spoil "$t.0" 24 377 377 377 377
check huge_tensor_count refused 'tensors; allowed are' "$scratch/bad"
spoil "$t.0" 20 0
check no_ranks refused 'rank 0 of 0' "$scratch/bad"
spoil "$t.0" 16 7
check rank_beyond_world refused 'rank 7 of 2' "$scratch/bad"
spoil "$t.0" 231 377
check impossible_time refused 'record 0: its time' "$scratch/bad"
spoil "$t.0" 256 377
check impossible_operation refused 'record 0: its operation' "$scratch/bad"
spoil "$t.0" 280 7 0 0 0
check a_rank_of_a_generation_with_more_was_waited_for tell "$scratch/bad"
check the_same_rank_twice refused 'of the same rank' "$t.0" "$t.0"
check json_that_cannot_be_written refused 'none/json: open: No such file' "$t.0" --json "$scratch/none/json" --quiet
tell; check nothing_is_a_usage_error [ $? -eq 2 ]
trace_fails() { ! train "$scratch/none/t" >/dev/null && grep -q "none/t.0" "$scratch/log"; }
check trace_that_cannot_be_written trace_fails
finish
