#!/bin/sh
# The rules of the tree: which folder includes which, which folders of tests there are, the width of lines,
# a README in each folder, headers that compile alone, what a public declaration says.
# No rule counts the lines of a file. tidy_allowed
# lists what does not hold yet, as "RULE NAME NUMBER": no more than NUMBER, and the list may only shrink
# (SHRINK=1 writes what is needed of it now, and never adds).
. firmware-tests/support/shell.sh
export LC_ALL=C.UTF-8
allowed=firmware-tests/support/tidy_allowed
found=$scratch/found
find lib ops drivers config tools firmware-tests -type f -name '*.*' ! -path '*/corpus/*' ! -path '*/results/*' >"$scratch/all"
sources() { grep -E "\.($1)\$" "$scratch/all" | sort; }
sources 'c|h|cu|cuh|cc|sh|py|awk' >"$scratch/code"

# Public functions that only read or name something: the others begin with GF_COMPUTES() (drivers/base/arithmetic.h).
reads="rank world first_rank first_world world_max gradient gradient_f32 gradient_bits16"
reads="$reads weight weight_f32 weight_bits16 weight_half metric step_skipped gradient_scale"
reads="$reads loss_scale block exchange_take abort state_bytes regroup_due joiners left left_out rejoined steps"
reads="$reads error_last path_name stats_read trace_read status_name type_size_bytes"
reads="$reads operation_name algorithm_name log_stderr error_text struct_bytes weights_common"

# ---- each rule writes lines "RULE NAME NUMBER" ----
{
    # A folder and what it may include: design of the tree in README.md. Public headers are those that are installed.
    xargs awk '
        function may(from, to) {
            if (to ~ /^firmware-tests\//) return from ~ /^firmware-tests/
            if (from ~ /^firmware-tests/ || from == dir(to)) return 1
            if (from == "drivers/base" || to ~ /^drivers\/base\//) return from != "drivers/base"
            if (to ~ /^drivers\/[a-z]*\.h$/) return 1
            if (to ~ /^lib\/(gradientflow|configuration|schedule)\.h$/) return 1
            if (from ~ /^drivers/) return 0
            if (from ~ /^ops/) return to ~ /^ops\//
            if (from ~ /^config/) return to ~ /^lib\/settings\//
            if (from ~ /^lib/ && to ~ /^lib\/control\// && to !~ /\/control\.h$/) return 0
            if (from ~ /^lib/ && to ~ /^lib\//) return arrow(part(from), part(dir(to)))
            if (from ~ /^lib/) return to ~ /^ops\//
            if (to ~ /^(config|tools\/common)\//) return 1
            if (from == "tools/coordinator") return to ~ /^lib\/control\//
            if (from == "tools/run") return to ~ /^tools\/coordinator\//
            return from == "tools/plan" && to ~ /^drivers\/sim\//
        }
        function dir(path) { sub(/\/[^\/]*$/, "", path); return path }
        # Inside of lib/. The context embeds what core and the parts of a step keep: lib/context.h is core.
        function part(folder) { return (folder == "lib") ? "core" : substr(folder, 5) }
        function arrow(from, to) { return (from == to) || index(" " arrows[from] " ", " " to " ") > 0 }
        BEGIN {
            arrows["core"] = "control device optimizer settings sparse"
            arrows["control"] = "settings"
            arrows["device"] = "core"
            arrows["observe"] = "core"
            arrows["optimizer"] = "core device settings"
            arrows["sparse"] = "core device settings"
            arrows["state"] = "core device settings"
            # Pairs that include each other, with the reason in lib/README.md: core and device, optimizer, sparse.
            for (a in arrows) for (b in arrows) pairs += (a < b) && arrow(a, b) && arrow(b, a)
            if (pairs > 3) n["include lib/(pairs)>each.other"] = pairs
        }
        /^[ \t]*#[ \t]*include "/ {
            to = $0; sub(/^[^"]*"/, "", to); sub(/".*/, "", to)
            if (to == "gradientflow.h") to = "lib/" to
            if (to == "config.h" || to == "config_keys.h") to = "config/" to
            if (to ~ /^(types|address|clock|fault)\.h$/) to = "drivers/base/" to
            if (to !~ /\//) to = dir(FILENAME) "/" to
            if (!may(dir(FILENAME), to)) n["include " dir(FILENAME) ">" dir(to)]++
        }
        /^[ \t]*#[ \t]*include <(cuda|uc[pst]\/|libconfig)/ {
            home = ($0 ~ /<cuda/) ? "drivers/cuda" : ($0 ~ /<libconfig/) ? "(config|tools/common)" : "drivers/ucx"
            if (FILENAME !~ "^(firmware-tests|" home ")") n["include " FILENAME ">" home]++
        }
        END { for (k in n) print k, n[k] }' <"$scratch/code"
    # Tests lie by what they test: a new folder is a word here, and a row of firmware-tests/README.md.
    folders=" bench coll config control core cuda drivers element fuzz lab node optimizer results sim soak sparse"
    folders="$folders support tcp tools ucx whole "
    for folder in firmware-tests/*/; do
        case $folders in *" $(basename "$folder") "*) ;; *) echo "folder $folder 1" ;; esac
    done
    # C and CUDA have the layout of clang-format, below, which lets comments be: they end at column 100, too, and so do
    # makefiles.
    { sources 'c|h|cu|cuh|mk'; echo Makefile; } |
        xargs awk 'length > 100 { n[FILENAME]++ } END { for (f in n) print "width", f, n[f] }'
    sources 'sh|py|awk' |
        xargs awk 'length > 120 { f = FILENAME; sub(/\/[^\/]*$/, "", f); n[f]++ } END { for (f in n) print "width", f, n[f] }'
    grep -v test_tidy "$scratch/code" | xargs grep -cE '\b(TODO|FIXME|XXX)\b' | awk -F: '$2 > 0 { print "todo", $1, $2 }'
    for folder in . lib ops drivers config firmware-tests tools; do
        [ -s $folder/README.md ] || echo "readme $folder/README.md 1"
    done
    # A declaration belongs to the comment above it, up to the next empty line; one that waits says that it may block.
    awk 'FNR == 1 || /^$/ { said = "" }
        /\/\*/ { said = said " " }
        /^ *(\/\*|\*)/ || inside { said = said $0 }
        { inside = /\/\*/ ? !/\*\// : inside && !/\*\// }
        /^[a-z].*[a-z_0-9]\(.*[,;]/ && !/^typedef/ {
            if (said !~ /[A-Za-z]/ && !/\/\*/) n[FILENAME]++
            if ($0 ~ /_wait(_for)?\(/ && said $0 !~ /[Bb]lock/) n[FILENAME]++
        } END { for (f in n) print "declaration", f, n[f] }' lib/gradientflow.h lib/advanced.h drivers/base/types.h lib/configuration.h lib/schedule.h config/config.h $(echo drivers link gpu channel base/clock base/fault base/address | sed 's|[a-z/]*|drivers/&.h|g')
    # A public function computes with the default mode of floating point, or only reads.
    cat lib/gradientflow.h lib/advanced.h lib/schedule.h drivers/base/types.h lib/configuration.h config/config.h |
        sed -nE 's/^[a-z][a-z0-9_ *]*[ *](gf_[a-z0-9_]+)\(.*/\1/p' |
        grep -vxE "gf_($(echo "$reads" | tr ' ' '|'))" >"$scratch/computes"
    sources c | grep -E '^(lib|config)/' | xargs awk -v list="$scratch/computes" '
        BEGIN { while ((getline name < list) > 0) lacks[name] = 1 }
        /^[a-z].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
        /^    GF_COMPUTES\(\);$/ && before == "{" { delete lacks[name] }
        { before = $0 } END { for (name in lacks) print "computes", name, 1 }'
    # Outside of lib/control/ there are ranks of a generation, and no ids of processes.
    grep -nE '(\<ids|_ids|id_of|members)\[' $(sources 'c|h' | grep -E '^(lib|ops|drivers)/' | grep -v '^lib/control/') |
        awk -F: '{ print "ranks", $1, 1 }' | sort -u
    # A header that some .c includes before all others was compiled alone there; the others are here.
    sources c | xargs awk 'FNR == 1 { seen = 0 }
        !seen && /^ *# *include/ { seen = 1
            if (split($0, part, "\"") < 3) next
            dir = FILENAME; sub(/[^\/]*$/, "", dir)
            print (part[2] ~ /\//) ? part[2] : dir part[2] }' | sort -u >"$scratch/first"
    for header in $(sources h | grep -vxFf "$scratch/first"); do
        echo "#include \"$header\"" >"$scratch/alone.c"
        ${CC:-gcc} -std=c11 -D_GNU_SOURCE -DGF_WITH_UCX=0 -DGF_WITH_CUDA=0 -DGF_WITH_NVCC=0 -I. -Ilib -Idrivers/base -Iconfig -I/usr/local/cuda/include \
            -fsyntax-only "$scratch/alone.c" 2>"$scratch/why" && continue
        # A package that not everybody has: libibverbs-dev, CUDA, UCX.
        lacks=$(sed -nE 's/.*: ((cuda|uc[pst]\/|infiniband\/)[^:]*): No such file.*/\1/p' "$scratch/why")
        echo "${lacks:+lacks }alone $header ${lacks:-1}"
    done
} >"$found"
sed -n 's/^lacks alone //p' "$found" | while read -r header lacks; do skip "tidy_alone" "$header: there is no <$lacks>"; done

for rule in include folder width todo readme declaration computes ranks alone; do
    grep "^$rule " "$found" | awk -v list="$allowed" '
        BEGIN { while ((getline row < list) > 0) { split(row, p, " "); most[p[1] " " p[2]] = p[3] } }
        $3 > most[$1 " " $2] { printf "%s: %s (%d are allowed); ", $2, $3, most[$1 " " $2] }' >"$scratch/why"
    if [ -s "$scratch/why" ]; then not_ok "tidy_$rule" "$(cat "$scratch/why")"; else ok "tidy_$rule"; fi
done
if command -v clang-format-14 >/dev/null; then
    sources 'c|h|cu|cuh|cc' | xargs clang-format-14 --dry-run 2>&1 | sed -n 's/:.*//p' | sort -u | tr '\n' ' ' >"$scratch/why"
    if [ -s "$scratch/why" ]; then not_ok tidy_layout "make format changes $(cat "$scratch/why")"; else ok tidy_layout; fi
else skip tidy_layout "there is no clang-format-14"; fi
# A page has one sentence a line, names what is there, and its pictures are those that the script draws.
if command -v python3 >/dev/null; then
    find . -name '*.md' ! -path './build*' -print0 | sort -z |
        xargs -0 python3 firmware-tests/support/sentences.py --check >"$scratch/why"
    if [ -s "$scratch/why" ]; then not_ok tidy_pages "make pages changes $(tr '\n' ' ' <"$scratch/why")"
    else ok tidy_pages; fi
    # what is no more stands in these two
    find . -name '*.md' ! -path './build*' ! -name CHANGELOG.md ! -name DESIGN.md -print0 | sort -z |
        PYTHONDONTWRITEBYTECODE=1 xargs -0 python3 firmware-tests/support/page_names.py >"$scratch/why"
    if [ -s "$scratch/why" ]; then not_ok tidy_names "$(tr '\n' ' ' <"$scratch/why")"
    else ok tidy_names; fi
    python3 lib/pictures/pictures.py --check >"$scratch/why"
    if [ -s "$scratch/why" ]; then not_ok tidy_pictures "make pictures changes $(tr '\n' ' ' <"$scratch/why")"
    else ok tidy_pictures; fi
else skip tidy_pages "there is no python3"; fi
awk -v found="$found" 'BEGIN { while ((getline row < found) > 0) { split(row, p, " "); now[p[1] " " p[2]] = p[3] } }
    { n = now[$1 " " $2] + 0; if (n > 0) print $1, $2, (n < $3) ? n : $3 }' "$allowed" >"$scratch/shrunk"
if [ -n "${SHRINK:-}" ]; then cp "$scratch/shrunk" "$allowed"
elif ! cmp -s "$scratch/shrunk" "$allowed"; then echo "tidy_allowed can shrink from $(wc -l <"$allowed") to $(wc -l <"$scratch/shrunk") rows: make tidy SHRINK=1"
fi
echo "$(wc -l <"$scratch/shrunk") exceptions"
[ -z "${FOUND:-}" ] || cp "$found" "$FOUND"
finish
