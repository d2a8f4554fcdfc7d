#!/bin/sh
# READMEs are there, and short enough to be read: 150 lines at the top, 100 in a folder, 60 below, 9,000 words in all.
. firmware-tests/support/shell.sh
short() { # FILE LINES
    [ -s "$1" ] && [ "$(wc -l <"$1")" -le "$2" ] || { echo "$1: $(wc -l <"$1") lines, at most $2"; return 1; }
}
check "the_readme_is_short" short README.md 150
for folder in lib ops drivers config firmware-tests tools; do
    check "the_readme_of_${folder}_is_short" short $folder/README.md 100
    for below in $(find $folder -mindepth 2 -name README.md); do check "so_is_$below" short "$below" 60; done
done
words=$(find README.md lib ops drivers config firmware-tests tools -name README.md -exec cat {} + | wc -w)
check "all_of_them_are_at_most_9000_words" [ "$words" -le 9000 ]
finish
