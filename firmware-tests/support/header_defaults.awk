# From lib/configuration.h and lib/schedule.h: "group.field default" for each field whose comment says what 0 or an empty text means, as the
# key table writes defaults. A comment stands above its field or behind it.
function flush_group(name,   i) {
    for (i = 0; i < count; i++) print name "." fields[i], values[i]
    count = 0
}
function value_of(text,   v) {
    if (!match(text, /(^|[ ;(])(0|empty): [^;]*/)) return ""
    v = substr(text, RSTART, RLENGTH)
    sub(/^[ ;(]*(0|empty): /, "", v)
    sub(/,? on a GPU.*/, "", v)
    gsub(/\*\/|^ +| +$/, "", v)
    gsub(/^ +| +$/, "", v)
    return v
}
/^struct gf_config \{/ { inside = 1; in_group = 0; next }
/^struct gf_schedule \{/ { inside = 1; in_group = 1; count = 0; said = ""; next }
!inside { next }
/^\};/ { if (in_group) flush_group("rate"); inside = in_group = 0; next }
/^    struct \{/ { in_group = 1; count = 0; said = ""; next }
/^    \} / { name = $2; sub(/;.*/, "", name); flush_group(name); in_group = 0; next }
{
    line = $0
    code = line; sub(/\/\*.*/, "", code); sub(/^ *\*.*/, "", code)
    text = line; if (line ~ /\/\*/) sub(/.*\/\*/, "", text); else if (line ~ /^ *\*/) sub(/^ *\* ?/, "", text); else text = ""
    said = said " " text
    if (code !~ /;/) next
    field = code; sub(/;.*/, "", field); sub(/\[.*/, "", field); sub(/.*[ *]/, "", field); sub(/_ns$/, "", field)
    v = value_of(said)
    said = ""
    if (in_group) { fields[count] = field; values[count++] = v } else print field, v
}
