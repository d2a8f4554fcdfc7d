#!/bin/sh
# bench/report.py without its benchmarks: a stored report becomes tables and charts, one that is
# malformed is refused with the place and what is allowed, and the tables in the pages are those of the
# stored report.
. firmware-tests/support/shell.sh
export PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null || { skip report "there is no python3"; finish; }
report() { python3 firmware-tests/bench/report.py "$@"; }
tool="python3 firmware-tests/bench/report.py" # for refused, as words
# shellcheck disable=SC2086
row() { # BENCH WHERE LABEL KEY UNIT VALUES
    printf '{"bench": "%s", "where": "%s", "label": "%s", "key": "%s", "unit": "%s", "values": [%s]}' "$@"
}
small=$scratch/small.json
cat >"$small" <<END
{"format": 1, "kind": "quick", "commit": "0123abcd", "date": "2026-11-28", "machine": "2 cores", "parts": {
"memory": {"rounds": 3, "rows": [$(row memory '2 ranks' ours 64 us '0.2, 0.1, 0.3'),
 $(row memory '2 ranks' ours 4096 us '2'), $(row memory '2 ranks' ours-program 4096 us '4'),
 $(row memory '2 ranks' slow 64 us '0.8'), $(row memory '2 ranks' slow 4096 us '9'),
 $(row memory '2 ranks' fast 64 us '0.5'),
 $(row memory '2 ranks' fast 4096 us '5'), $(row failed bench_peers.sh slow turns turns '1, 1')]},
"hosts": {"rounds": 1, "rows": [$(row hosts '2 hosts, 1000 Mbit/s' ours 4096 us 20),
 $(row hosts '2 hosts, 1000 Mbit/s' limit 4096 us 10), $(row hosts '2 hosts, 1000 Mbit/s' fast 4096 us 30)]},
"memory-models": {"rounds": 1, "rows": [$(row models 'resnet50, 2 ranks' ours step us 5000),
 $(row models 'resnet50, 2 ranks' fast each us 9000), $(row models 'resnet50, 2 ranks' fast fused us 7500)]},
"recovery": {"rounds": 3, "rows": [$(row recovery '3 ranks over node, quiet' outside kill s '0.02, 0.05, 0.03')]},
"plan": {"rounds": 1, "rows": [$(row plan '4 hosts, 100 Mbit/s' measured nin ms 100),
 $(row plan '4 hosts, 100 Mbit/s' predicted nin ms 95)]},
"idle": {"rounds": 1, "rows": [$(row idle '2, a core each' auto 64 us 2), $(row idle '2, a core each' yield 64 us 3),
 $(row idle '2, a core each' sleep 64 us 9)]},
"faults": {"rounds": 1, "of": "89abcdef", "rows": [$(row faults tcp_kill_worker told 1 s '0.1, 0.3, 0.2'),
 $(row faults tcp_kill_worker held 1 s 3), $(row faults tcp_kill_worker runs 1 s 3)]}}}
END

# 1. Tables: medians, the fastest peer and its name, ratios.
if command -v gnuplot >/dev/null; then
    check report_writes report write "$small" --into "$scratch/made"
    for line in '| ours | 0.2 us | 2 us |' '| best peer | 0.5 us | 5 us |' '| which | fast | fast |' \
        '| best peer / ours | 2.50 | 2.50 |' "| best peer / program's memory | - | 1.25 |" \
        '| of the link, fp32 | 0.50 |' \
        '| ResNet-50, 2 ranks of a node | - | 5 ms | - | 7.5 ms | fast | 1.50 | - |' \
        '| NiN, ring, nothing computed | 100, -5.0 % |' \
        '| 3 ranks in shared memory | 0.020 / 0.030 / 0.050 | 3 |' 'Commit 0123abcd, 2026-11-28, 2 cores.' \
        'Turns that failed and are in no median: slow (2 in bench_peers.sh).' \
        '| ranks | size | auto | yield | sleep | best fixed / auto |' \
        '| 2, a core each | 64 B | 2 us | 3 us | 9 us | 1.50 |' \
        '`make fault-table` of commit 89abcdef; runs of each fault: 3.' \
        '| a process is killed | 0.20 s, 0.30 s | all end; with `--elastic` the others continue |' \
        '| 4 KiB, 2 ranks of a node | 2 us | 5 us (fast) | 2.50 |'; do
        check "report_table: $line" grep -qxF "$line" "$scratch/made/tables.md"
    done
    check report_sentences python3 firmware-tests/support/sentences.py --check "$scratch/made/tables.md"
    # 2. Charts: one for each place that was measured and none for the others; readable in the dark.
    check report_charts same "$(cd "$scratch/made" && echo *.svg)" "hosts-2.svg memory-2.svg models.svg recovery.svg"
    for chart in "$scratch"/made/*.svg; do
        check "report_dark ${chart##*/}" grep -q 'prefers-color-scheme: dark' "$chart"
        check "report_xml ${chart##*/}" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$chart"
    done
    # Only a full report, whole, goes into the pages.
    refused report_quick_stays 'only a full report with all of its parts' $tool write "$small"
    sed 's/"quick"/"full"/' "$small" >"$scratch/part.json"
    refused report_part_stays 'only a full report with all of its parts' $tool write "$scratch/part.json"
    check report_pages_untouched git diff --quiet -- firmware-tests/results/report.json
else
    skip report_charts "there is no gnuplot"
fi
# Without gnuplot a report says so before it measures for hours.
python=$(python3 -c 'import sys; print(sys.executable)')
refused report_no_gnuplot 'apt-get install gnuplot-nox' env PATH="$scratch/none" \
    "$python" firmware-tests/bench/report.py measure --quick
refused report_no_part 'no part .nothing.; there are: memory ' $tool measure --quick --parts nothing

# 3. Malformed: where, what it is, and what is allowed.
bad() { # NAME TEXT SED
    sed "$3" "$small" >"$scratch/bad.json"
    cmp -s "$small" "$scratch/bad.json" && { not_ok "report_bad_$1" "nothing was changed"; return; }
    refused "report_bad_$1" "$2" $tool write "$scratch/bad.json" --into "$scratch/bad"
}
bad json 'bad.json: not JSON' 's/"rounds": 3,/"rounds": 3/'
bad format 'bad.json: .*"format" is 1' 's/"format": 1/"format": 2/'
bad commit '"commit" must be .* not .yesterday' 's/0123abcd/yesterday/'
bad date '"date" must be YYYY-MM-DD' 's/2026-11-28/today/'
bad kind '"kind" is full or quick' 's/"quick"/"half"/'
bad part "parts are memory, .*, not 'memorie'" 's/"memory":/"memorie":/'
bad of 'part faults: "of" is the commit' 's/89abcdef/today/'
bad rounds 'part recovery: "rounds"' 's/"recovery": {"rounds": 3/"recovery": {"rounds": 0/'
bad value 'part memory, row 2: a value is a finite number, 0 or more, not -2' 's/\[2\]/[-2]/'
bad nan 'row 2: a value is a finite number' 's/\[2\]/[NaN]/'
bad text "row 2: a value is a finite number, 0 or more, not '2'" 's/\[2\]/["2"]/'
bad values 'row 2: "values" must be a list' 's/\[2\]/2/'
bad bench 'row 8: "bench" is one of memory' 's/"failed"/"fallen"/'
bad unit "the unit of plan is ms, not 'us'" 's/"unit": "ms"/"unit": "us"/'
bad lacks 'part hosts, row 1: "key" must be a text' '/"hosts"/s/"key": "4096", //'
refused report_absent 'No such file' $tool write "$scratch/nothing.json" --into "$scratch/bad"
check report_bad_writes_nothing [ ! -e "$scratch/bad" ]

# A full report is a full one, and a quick one quick.
makes() { GF_QUIET=1 make -n report "$@" 2>/dev/null | tr -s '\\\n ' ' ' | grep -o 'report.py measure.*'; }
check report_full same 'report.py measure --parts "" ' "$(unset QUICK; makes)"
check report_quick same 'report.py measure --quick --parts "plan" ' "$(makes QUICK=1 PARTS=plan)"

# People run what takes half an hour, and not what takes two.
check report_half_an_hour python3 -c 'import sys; sys.path.insert(0, "firmware-tests/bench")
import report; sys.exit(sum(part["seconds"] for part in report.PARTS.values()) > 1800)'

# 4. What the pages show is what the stored report says; the marks around tables are whole.
check report_pages report check
finish
