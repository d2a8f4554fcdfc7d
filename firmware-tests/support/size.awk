# Of a linker map: what each member of the library in LIB brought into a program. "MEMBER TEXT CONSTANT DATA BSS", bytes: text is code, constant
# the rest of what size(1) calls text: constants, unwind tables, and a GPU's kernels.
function count(section, size, file,    at) {
    at = index(file, LIB "(")
    if (at == 0) return
    file = substr(file, at + length(LIB) + 1)
    sub(/\)$/, "", file)
    if (section ~ /^\.text/) text[file] += size
    else if (section ~ /^\.(rodata|eh_frame|init_array|fini_array)/) constant[file] += size
    else if (section ~ /^\.(data|tdata)/) data[file] += size
    else if (section ~ /^\.(bss|tbss)/ || section == "COMMON") bss[file] += size
    else return
    seen[file] = 1
}
function hex(word,    value, i) {
    word = tolower(word)
    value = 0
    for (i = 3; i <= length(word); i++) value = value * 16 + index("0123456789abcdef", substr(word, i, 1)) - 1
    return value
}
/^Linker script and memory map/ { in_map = 1 }
!in_map { next }
/^ [.C][^ ]*$/ { pending = $1; next }
/^ +0x[0-9a-f]+ +0x[0-9a-f]+ / && pending != "" { count(pending, hex($2), $3); pending = ""; next }
/^ [.C][^ ]* +0x[0-9a-f]+ +0x[0-9a-f]+ / { count($1, hex($3), $4) }
{ pending = "" }
END { for (file in seen) print file, text[file] + 0, constant[file] + 0, data[file] + 0, bss[file] + 0 }
