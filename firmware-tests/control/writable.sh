#!/bin/sh
# writable.sh PROGRAM: fails where it has data that can be written and is not known here. The library's own would have
# to be saved with a world (states_world.c); there is none. What the search has no step of a world reads after its end.
known="the_world frames member_memory coordinator_memory frame states_logs"
known="$known found most states_seen_bits path texts path_count path_limits seen saved random_state missing"
known="$known went part part_count firsts"
runtime="__TMC_END__ __bss_start __data_start _edata _end __dso_handle data_start completed stdout stderr"
nm -f sysv "$1" | awk -F'|' -v known="$known $runtime" '
    BEGIN { n = split(known, names, " "); for (i = 1; i <= n; i++) is_known[names[i]] = 1 }
    { gsub(/ /, ""); name = $1; sub(/@.*/, "", name) }
    split(name, part, ".") > 1 { name = (part[2] ~ /^[0-9]+$/) ? part[1] : part[2] } # gcc: steps.0, clang: show.steps
    $1 ~ /^__(odr_)?asan/ { next } # of the sanitizers, about this data
    $7 ~ /^\.t?(data|bss)$/ && !is_known[name] { print "can be written, and is in no saved world: " $1; bad = 1 }
    END { exit bad }' >&2
