#!/bin/sh
# audit.sh ARCHIVE [ALLOWED]: fails, naming object and symbol, if an object of the library takes something from outside of it
# that audit_allowed does not list for it: an allocator, a thread, a signal, stdio, the environment. UNUSED=1 names instead
# what is listed and taken by no object.
set -u
[ -r "${1:-}" ] || { echo "audit.sh: no archive \"${1:-}\"" >&2; exit 2; }
allowed=${2:-firmware-tests/support/audit_allowed}
# What UCX itself takes is not asked: in place of the object that it shares with its driver, the driver's own.
own=
ar t "$1" 2>/dev/null | grep -q '^with_ucx.o$' && own=$(ls "$(dirname "$1")"/drivers/ucx/link_ucx*.o)
taken=$({ nm --defined-only "$1" $own; echo "-- undefined"; nm -u "$1" $own; } 2>/dev/null | awk '
    $0 == "-- undefined" { outside = 1; next }
    /^with_ucx.o:$/ { object = ""; next }
    /^[^ ].*:$/ { object = substr($0, 1, length($0) - 1); sub(/.*\//, "", object); next }
    object == "" { next }
    !outside { if (NF == 3) own[$3] = 1; next }
    $1 == "U" || $1 == "w" { name = $2; sub(/@.*/, "", name); if (!(name in own)) print object, name }' |
    sed -E 's/ __(real|wrap|isoc99|isoc23)_/ /; s/ __(.*)_chk$/ \1/; s/64$//' | sort -u)
[ -n "$taken" ] || { echo "audit.sh: $1 names no symbol" >&2; exit 2; }
found=$({ grep -v '^#' "$allowed"; echo "-- taken"; echo "$taken"; } | awk -v unused="${UNUSED:-0}" '
    function pattern(text) { gsub(/\./, "\\.", text); gsub(/\*/, ".*", text); return "^" text "$" }
    $0 == "-- taken" { taken = 1; next }
    !taken { at = index($0, ":"); if (at == 0) next
             n = split(substr($0, 1, at - 1), objects, " "); m = split(substr($0, at + 1), symbols, " ")
             for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) {
                 object[++count] = pattern(objects[i]); symbol[count] = pattern(symbols[j])
                 said[count] = substr($0, 1, at) " " symbols[j] }
             next }
    { fits = 0
      for (i = 1; i <= count; i++) if ($1 ~ object[i] && $2 ~ symbol[i]) { fits = 1; used[said[i]] = 1 }
      if (!fits && !unused) print $1 ": " $2 }
    END { if (unused) for (i = 1; i <= count; i++) if (!(said[i] in used) && !told[said[i]]++) print said[i] }')
[ -z "$found" ] && { echo "audit: $1 takes from outside what $allowed lists, and no more"; exit 0; }
[ "${UNUSED:-0}" = 1 ] && echo "audit: listed in $allowed, and not taken:" >&2 || echo "audit: $1 must not take:" >&2
echo "$found" >&2
exit 1
