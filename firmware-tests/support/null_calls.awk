# Public headers to a C file's rows: for each pointer of each call one with NULL in its place and what a caller would
# hand in elsewhere, and one with NULL in all places. A new call needs nothing here, but for a new kind of callback.
#     ROW(call, which pointer, does it answer with a status, does its comment say NULL, is there a context, the call)
function trim(text) { gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text); return text }
# By its type, else by its name.
function is_pointer(param) { return param ~ /\*|\[/ || param ~ /^gf_(mem|log_fn|trace_put|memory_take) / }
function null_of(param) { return (param ~ /^gf_mem /) ? "0" : "NULL" }
function value_of(param,    name) {
    name = param; sub(/\[.*/, "", name); sub(/.*[ *]/, "", name)
    if (param ~ /^(const )?gf_context \*[a-z_]*$/) return "gf"
    if (param ~ /^(const )?struct gf_config \*/) return "&config"
    if (param ~ /^const struct gf_tensor \*/) return "&tensor"
    if (param ~ /^struct gf_stats \*/) return "&stats"
    if (param ~ /^const char \*const \*/) return "texts"
    if (param ~ /^const char \*/) return (name == "path") ? "path" : (name == "key") ? "\"link.window\"" : "\"4\""
    if (param ~ /^FILE \*/) return "out"
    if (param ~ /^gf_mem /) return "(gf_mem)(uintptr_t)room"
    if (param ~ /^gf_log_fn /) return "log_nothing"
    if (param ~ /^gf_trace_put /) return "put_nothing"
    if (param ~ /^gf_memory_take /) return "aligned_alloc"
    if (param ~ /\*|\[/) return "(void *)room"
    if (name ~ /bytes/) return "64"
    if (name ~ /count|max/) return "1"
    return "0"
}
function declared(text, said,    name, type, at, n, i, j, count, params, call, which) {
    gsub(/__attribute__\(\(.*\)\) /, "", text)
    at = index(text, "(")
    name = substr(text, 1, at - 1); sub(/.*[ *]/, "", name)
    if (name !~ /^gf_/ || text ~ /^(typedef|extern|static)/) return
    type = trim(substr(text, 1, index(text, name) - 1))
    text = substr(text, at + 1); sub(/\)[^)]*$/, "", text)
    gsub(/NULL[^.;]*GF_ERR_PARAM|GF_ERR_PARAM:[^.;]*NULL/, "", said) # that is the rule
    n = split(text, params, ",")
    for (i = 1; i <= n; i++) { params[i] = trim(params[i]); if (is_pointer(params[i])) count++ }
    for (j = 1; j <= n + (count > 1); j++) {
        if (j <= n && !is_pointer(params[j])) continue
        call = ""
        for (i = 1; i <= n; i++)
            call = call (i > 1 ? ", " : "") \
                ((i == j || (j > n && is_pointer(params[i]))) ? null_of(params[i]) : value_of(params[i]))
        which = (j > n) ? "all" : params[j]
        sub(/\[.*/, "", which); sub(/.*[ *]/, "", which)
        printf "ROW(\"%s\", \"%s\", %d, %d, %d, %s%s(%s))\n", name, which, type == "gf_status", said ~ /NULL/, \
            text ~ /gf_context \*/, (type == "gf_status") ? "answer = " : "(void)", name, call
    }
}
/^$/ { said = "" }
{
    line = $0
    if (inside) {
        said = said line
        if (line !~ /\*\//) next
        inside = 0; sub(/.*\*\//, "", line)
    }
    while (match(line, /\/\*[^*]*\*\//)) {
        said = said substr(line, RSTART, RLENGTH)
        line = substr(line, 1, RSTART - 1) " " substr(line, RSTART + RLENGTH)
    }
    if ((at = index(line, "/*")) > 0) { said = said substr(line, at); line = substr(line, 1, at - 1); inside = 1 }
    if (line ~ /^#/ || line ~ /^extern "C"/ || line ~ /^}$/) { continues = line ~ /\\$/; next }
    if (continues) { continues = line ~ /\\$/; next }
    depth += gsub(/{/, "{", line) - gsub(/}/, "}", line)
    statement = statement " " line
    if (depth > 0 || line !~ /;[ \t]*$/) next
    statement = trim(statement); sub(/;$/, "", statement)
    if (statement !~ /{/ && statement ~ /\(/) declared(statement, said)
    statement = ""
}
