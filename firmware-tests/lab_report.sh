# shellcheck shell=sh disable=SC2034,SC2154 # shared with lab.sh
# The table of what has been measured, from the records of runs.

# min, median, max of the numbers that are read
spread() {
    sort -n | awk '{ t[NR] = $1 } END {
        if (NR == 0) print "| |"
        else printf "%.2f / %.2f / %.2f", t[1], (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2, t[NR] }'
}
report_table() { # FOLDER
    echo "| fault | how it is made | bound, s | measured, s | runs | survivors say | what survives |"
    echo "|---|---|---|---|---|---|---|"
    printf '%s' "$lab_table" | while IFS='|' read -r name bound how keeps; do
        [ -d "$1/$name" ] || continue
        runs=$(find "$1/$name" -type f | wc -l)
        good=$(grep -L '^bad' "$1/$name"/* | wc -l)
        times=$(sed -n 's/^told //p' "$1/$name"/* | grep . | spread)
        [ "$bound" = - ] && times=-
        said=$(sed -n 's/^said //p' "$1/$name/1" | head -n 1 | tr '|' '/')
        [ "$good" -eq "$runs" ] && count=$runs || count="$good of $runs"
        echo "| \`$name\` | $how | $bound | $times | $count | $said | $keeps |"
    done
}
