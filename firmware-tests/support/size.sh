#!/bin/sh
# What the core and each module cost a program, in bytes, from the linker maps of the programs that test_modules.sh runs, and
# a stripped appliance; beside the numbers in firmware-tests/results/size.md.
#     size.sh            all of them        size.sh changes    those that differ by more than 2 %        size.sh record
BUILD=${BUILD:-build}
kept=firmware-tests/results/size.md
maps=$BUILD/firmware-tests
members() { awk -v LIB=libgradientflow.a -f firmware-tests/support/size.awk "$maps/modules_$1.map" | sort; }
total() { awk -v name="$1" '{t += $2; c += $3; d += $4; b += $5} END {print name, t + 0, c + 0, d + 0, b + 0}'; }
measure() {
    members core | total core
    for module in server direct hierarchy authentication hardware integrity sparse quantize optimizer elastic state \
        observe device; do
        { members $module | sed 's/^/+ /'; members core | sed 's/^/- /'; } |
            awk -v name=$module '{s = $1 "1"; t += s * $3; c += s * $4; d += s * $5; b += s * $6} END {print name, t + 0, c + 0, d + 0, b + 0}'
    done
    # All objects of the library, but those that only config/ wants, and the kernels by themselves.
    size -A "$BUILD/libgradientflow.a" | awk '
        / :$|:$/ && /ex / { file = $1 }
        file ~ /^config_/ { next }
        $1 ~ /^\.text/ { t += $2 }
        $1 ~ /^\.(rodata|eh_frame)/ { if (file ~ /fatbin/) k += $2; else c += $2 }
        $1 ~ /^\.data/ { d += $2 }
        $1 ~ /^\.bss/ { b += $2 }
        END { print "library", t + 0, c + 0, d + 0, b + 0; print "kernels", 0, k + 0, 0, 0 }'
    if [ -x "$BUILD/example" ]; then
        strip -o "$BUILD/example.stripped" "$BUILD/example"
        echo "appliance" "$(wc -c <"$BUILD/example.stripped")" 0 0 0
    fi
    [ "${1:-}" = changes ] || infiniband
}
# The same with UCX's InfiniBand. Where that cannot be linked the row is the one of before.
infiniband() {
    why="libibverbs-dev is not installed"
    if [ -e /usr/include/infiniband/verbs.h ] &&
        flags=$(MAKEFLAGS='' make -s GF_QUIET=1 BUILD="$BUILD" UCX_IB=1 flags 2>&1); then
        # shellcheck disable=SC2086
        ${CC:-gcc} -std=c11 -O2 tools/example/appliance.c -s -o "$BUILD/example.ib" $flags &&
            echo "appliance_UCX_IB=1" "$(wc -c <"$BUILD/example.ib")" 0 0 0
    else
        echo "size: appliance_UCX_IB=1 is skipped: ${flags:-$why}" >&2
        sed -n 's/^| \(appliance_UCX_IB=1\) /\1 /p' "$kept" | tr -d '|'
    fi
}
table() {
    echo "| what | text | constants | data | bss |"
    echo "|---|---|---|---|---|"
    awk '{printf "| %s | %d | %d | %d | %d |\n", $1, $2, $3, $4, $5}'
}
case ${1:-} in
record)
    { sed '/^| what/,$d' "$kept"; measure | table; } >"$kept.new" && mv "$kept.new" "$kept" ;;
changes)
    measure changes | awk '
        FNR == NR { gsub(/[|]/, " "); if ($2 ~ /^[0-9]+$/) { known[$1] = 1; text[$1] = $2; constant[$1] = $3; data[$1] = $4 } next }
        function far(now, was) { return now > was * 1.02 + 16 || now < was * 0.98 - 16 }
        known[$1] && (far($2, text[$1]) || far($3, constant[$1]) || far($4, data[$1])) {
            printf "size: %s has %d bytes of text, %d of constants, %d of data; firmware-tests/results/size.md says %d, %d, %d\n",
                $1, $2, $3, $4, text[$1], constant[$1], data[$1] }' "$kept" - ;;
*)
    measure | table ;;
esac
