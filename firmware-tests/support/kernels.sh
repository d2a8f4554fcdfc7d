#!/bin/sh
# What each nvcc made of each kernel at each arch, beside the numbers in firmware-tests/results/kernels.md.
#     kernels.sh    the table    kernels.sh worse    what is worse than recorded, a line each    kernels.sh record
#     kernels.sh loads    of each kernel: bytes an element, loads under way, registers; of sm_90's machine code where an
#                         nvdisasm reads it, else of nvcc's PTX
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
loads)
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    if nvdisasm -c "$made/elf.90" >"$scratch/code" 2>/dev/null; then of=sass
    else
        of=ptx
        nvcc -allow-unsupported-compiler -O3 -std=c++17 -fmad=false -I. -Ilib -Idrivers/base -arch=compute_90 -ptx \
            -o "$scratch/code" "$BUILD/ops/element/cuda/gf_kernels.cu" || exit 1
    fi
    python3 firmware-tests/cuda/kernel_loads.py $of "$scratch/code" >"$scratch/loops"
    measure >"$scratch/all"
    echo "| kernel ($of) | bytes an element, read + written | loads under way, bytes a thread |" \
        "KiB a multiprocessor | registers |"
    echo "|---|---|---|---|---|"
    awk '
        function size(name) { return (name ~ /f16$/) ? 2 : 4 }
        function to(name) { return (name ~ /^cast_b?f16_/) ? 2 : 4 }
        function each(name, s) {
            s = size(name)
            if (name ~ /^cast/) return s " + " to(name)
            if (name ~ /^sum_n/) return s " a source + " s " a destination"
            if (name ~ /^sum/) return 2 * s " + " s
            if (name ~ /^check|^norm_runs/) return s " + 0"
            if (name ~ /^accumulate/) return s + 8 " + 8"
            if (name ~ /^update/) return s + 8 " + 8"
            if (name ~ /^adam/) return s + 12 " + 12"
            if (name == "score") return "4 + 0"
            if (name == "zero_chunks") return "0 + 2"
            if (name == "copy_n") return "2 + 2"
            return "-"
        }
        FNR == NR { if ($4 > bytes[$1]) { bytes[$1] = $4; loads[$1] = $3 }; next }
        $2 ~ /^90/ && $1 !~ /^(abi|image|ptx)$/ {
            threads = ($3 > 64) ? 512 : 1024
            printf "| %s | %s | %s | %s | %d |\n", $1, each($1), loads[$1] ? loads[$1] ", " bytes[$1] : "-",
                bytes[$1] ? bytes[$1] * threads / 1024 : "-", $3
        }' "$scratch/loops" "$scratch/all" ;;
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
