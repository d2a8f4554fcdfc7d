#!/bin/sh
# What each nvcc made of each kernel at each arch, beside the numbers in firmware-tests/results/kernels.md.
#     kernels.sh    the table    kernels.sh worse    what is worse than recorded, a line each    kernels.sh record
BUILD=${BUILD:-build}
kept=firmware-tests/results/kernels.md
made=$BUILD/ops/element/cuda/gf_kernels.fatbin.kept
by=$(awk '{ print $3 }' "$made/stated" | sort -Vu | paste -sd +) # which nvcc: 13.0, or 11.8+13.0
# Bytes that a kernel loads (zero_chunks: stores) an element, by its name: the last type is that of what it reads.
measure() {
    grep elf "$made/stated" | while read -r _ arch cuda; do
        "$BUILD/firmware-tests/program_kernels" $arch "$made/elf.$arch" | sed "s|^abi|abi $arch|; s|^|$cuda |"
    done | awk -v LOG="$made/ptxas.log" '
        function size(name) { return (name ~ /_(f|bf)16$/) ? 2 : 4 }
        function each(name) {
            if (name ~ /^(update)/) return 8 + size(name)
            if (name ~ /^(accumulate|adam)/) return 12 + size(name)
            if (name ~ /^sum_n/) return 0
            if (name ~ /^sum/) return 2 * size(name)
            return size(name)
        }
        BEGIN {
            while ((getline line <LOG) > 0) {
                if (match(line, /gf_kernel_[a-z0-9_]+. for .sm_[0-9]+/)) {
                    split(substr(line, RSTART + 10, RLENGTH - 10), word, /. for .sm_/)
                    key = word[1] " " word[2]
                } else if (match(line, /[0-9]+ bytes spill stores/)) spills[key] += substr(line, RSTART) + 0
                else if (match(line, /Used [0-9]+ registers/)) registers[key] = substr(line, RSTART + 5) + 0
            }
        }
        { by = $1; sub(/^[0-9.]+ /, "") }
        /^abi/ { print $1, $2 "/" by, 0, 0, 0, 0, 0, $3; next }
        {
            key = $1 " " $2; bytes = ($1 ~ /^zero/) ? $5 / 2 : each($1) ? $4 / each($1) : 0
            each_one = bytes ? $3 / bytes : 0
            printf "%s %s/%s %d %d %d %d %.1f %d\n", $1, $2, by, registers[key], spills[key], $7, $6, each_one, $9
        }'
    echo "image $by 0 0 0 0 0 $(wc -c <"${made%.kept}")"
    # PTX 9.0 counts as 900.
    awk -v by="$by" '/^\.version/ { split($2, v, "."); print "ptx", by, 0, 0, 0, 0, 0, v[1] * 100 + v[2] }' \
        "$made"/ptx.90
}
case ${1:-} in
record)
    { sed '/^| what/,$d' "$kept"
      echo "| what | arch | registers | spilled | stack | narrow | instructions an element | bytes |"
      echo "|---|---|---|---|---|---|---|---|"
      measure | sed 's/ / | /g; s/^/| /; s/$/ |/' >"$made/rows"
      cat "$made/rows"
      awk -F ' *[|] *' '
          FNR == NR { made[$3]; next }
          /^[|] what/ { in_table = 1 }
          in_table && $3 ~ /[0-9]/ && !($3 in made)' "$made/rows" "$kept"
    } >"$kept.new" && mv "$kept.new" "$kept" ;;
worse)
    measure | awk '
        FNR == NR {
            gsub(/[|]/, " ")
            if ($3 !~ /^[0-9]+$/) next
            known[$1 " " $2] = 1
            for (f = 3; f <= 8; f++) was[$1 " " $2, f] = $f
            next
        }
        BEGIN { split("x x registers spilled stack narrow instructions_an_element bytes", name) }
        { key = $1 " " $2; slack = ($1 ~ /^(abi|ptx)/) ? 1 : 1.02 }
        !known[key] { print key " is not recorded"; next }
        {
            for (f = 3; f <= 8; f++)
                if ($f > was[key, f] * ((f < 7) ? 1 : slack))
                    print key ": " name[f] " " $f ", recorded " was[key, f]
        }' "$kept" - ;;
*) measure | awk '{ printf "%-32s %-16s", $1, $2; for (i = 3; i <= NF; i++) printf " %8s", $i; print "" }' ;;
esac
