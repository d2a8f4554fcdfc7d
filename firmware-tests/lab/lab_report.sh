# shellcheck shell=sh disable=SC2034,SC2154 # shared with lab.sh
# The table of what has been measured, from the records of runs.

# min, median, max of the numbers that are read
spread() {
    sort -n | awk '{ t[NR] = $1 } END {
        if (NR == 0) print "| |"
        else printf "%.2f / %.2f / %.2f", t[1], (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2, t[NR] }'
}
# Runs in which something else was wrong than the time, or the time was over the bound.
report_bad() { # FOLDER/CASE BOUND
    for record in "$1"/*; do
        awk -v bound="$2" -v run="${record#"${1%/*}"/}" '
            /^bad told/ { next }
            /^bad/ { sub(/^bad /, ""); print run ": " substr($0, 1, 160); exit }
            /^told/ && bound != "-" && $2 > bound + 0 { print run ": told after " $2 " s"; exit }' "$record"
    done
}
report_table() { # FOLDER
    echo "| case | how it is made | bound, s | min / median / max, s | runs that held | what was said (one run) | what survives |"
    echo "|---|---|---|---|---|---|---|"
    : >"$1/bad.txt"
    printf '%s' "$lab_table" | while IFS='|' read -r name bound how keeps; do
        if [ -z "$name" ] || [ ! -d "$1/$name" ]; then continue; fi
        runs=$(find "$1/$name" -type f | wc -l)
        report_bad "$1/$name" "$bound" >"$1/bad.one"
        cat "$1/bad.one" >>"$1/bad.txt"
        times=$(sed -n 's/^told //p' "$1/$name"/* | grep . | spread)
        [ "$bound" = - ] && times=-
        said=$(grep -h -m 1 '^said ' "$1/$name"/* | head -n 1 | sed 's/^said //; s/ (GF_ERR_[A-Z]*)//' | tr '|' '/' | cut -c1-170)
        echo "| \`$name\` | $how | $bound | $times | $((runs - $(wc -l <"$1/bad.one"))) of $runs | $said | $keeps |"
    done
    echo
    sed 's/^/- /' "$1/bad.txt"
    rm -f "$1/bad.txt" "$1/bad.one"
}
# The same as JSON, a line for each case and what is counted of it, for bench/report.py.
report_rows() { # FOLDER
    printf '%s' "$lab_table" | while IFS='|' read -r name bound how keeps; do
        if [ -z "$name" ] || [ ! -d "$1/$name" ]; then continue; fi
        runs=$(find "$1/$name" -type f | wc -l)
        held=$((runs - $(report_bad "$1/$name" "$bound" | wc -l)))
        times=$(sed -n 's/^told //p' "$1/$name"/* | grep . | paste -sd, -)
        [ "$bound" = - ] && times=''
        for row in "told|$times" "held|$held" "runs|$runs"; do
            printf '{"bench": "faults", "where": "%s", "label": "%s", "key": "%s", "unit": "s", "values": [%s], ' \
                "$name" "${row%%|*}" "$bound" "${row#*|}"
            printf '"note": "%s|%s"}\n' "$how" "$keeps"
        done
    done
}
