# shellcheck shell=sh disable=SC2034,SC2154 # shared with lab.sh
# The table of what has been measured, from the records of runs.

# min, median, max of the numbers that are read
spread() {
    sort -n | awk '{ t[NR] = $1 } END {
        if (NR == 0) print "| |"
        else printf "%.2f / %.2f / %.2f", t[1], (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2, t[NR] }'
}
report_table() { # FOLDER
    echo "| case | how it is made | bound, s | min / median / max, s | runs that held | what was said (one run) | what survives |"
    echo "|---|---|---|---|---|---|---|"
    printf '%s' "$lab_table" | while IFS='|' read -r name bound how keeps; do
        [ -n "$name" ] && [ -d "$1/$name" ] || continue
        runs=$(find "$1/$name" -type f | wc -l)
        good=$(grep -L '^bad' "$1/$name"/* | wc -l)
        times=$(sed -n 's/^told //p' "$1/$name"/* | grep . | spread)
        [ "$bound" = - ] && times=-
        said=$(grep -h -m 1 '^said ' "$1/$name"/* | head -n 1 | sed 's/^said //; s/ (GF_ERR_[A-Z]*)//' | tr '|' '/' | cut -c1-170)
        echo "| \`$name\` | $how | $bound | $times | $good of $runs | $said | $keeps |"
    done
    echo
    grep '^bad' "$1"/*/* | sed "s|^$1/||; s|:bad |: |; s|/| run |" | cut -c1-200
}
