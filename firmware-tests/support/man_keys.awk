# From `gf-check --keys` to the list of keys in gradientflow.cfg.5.
BEGIN { FS = " [|] " }
NR > 2 {
    key = $1; sub(/^[|] /, "", key); gsub(/`/, "", key); gsub(/`/, "", $3)
    meaning = $5; sub(/ [|]$/, "", meaning)
    same = sub(/ \(the same on all ranks\)$/, "", meaning)
    print ".It Cm " key " Pq " $2
    print meaning (same ? "; the same on all ranks." : ".")
    print "Default: " $3 "."
    print "Allowed: " $4 "."
}
