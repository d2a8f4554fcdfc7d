# From `gf-check --keys` and `gf-plan --keys` to the lists of keys in pages of section 5.
BEGIN { FS = " [|] " }
NR > 2 {
    key = $1; sub(/^[|] /, "", key); gsub(/`/, "", key); gsub(/`/, "", $3)
    meaning = $5; sub(/ [|]$/, "", meaning)
    same = sub(/ \(the same on all ranks\)$/, "", meaning)
    print ".It Cm " key " Pq " $2
    # "tcp: ..", "ranks, samples: ..": a value is written as in a file
    if (meaning !~ /^[a-z]+(, [a-z]+)*:/) meaning = toupper(substr(meaning, 1, 1)) substr(meaning, 2)
    print meaning "."
    if (same) print "The same on all ranks."
    if ($3 == "required") print "It must be there."
    else if ($3 != "left out") print "Default: " $3 "."
    print "Allowed: " $4 "."
}
