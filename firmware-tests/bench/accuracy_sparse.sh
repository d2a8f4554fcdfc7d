#!/bin/sh
# What sparse communication costs at shares from 1 to 30 %, and the losses of dense and sparse runs: tables in Markdown
# and, where gnuplot is, a plot (sparse.svg). One seed, under 15 minutes of one core; SEEDS=1,2,3 three, KINDS=rules the
# alternatives to the library's rules (20 minutes a seed). Runs that $BUILD/accuracy/sparse.txt has are not made again.
set -u
BUILD=${BUILD:-build}
python=/usr/bin/python3
script=firmware-tests/bench/sparse_rules.py
out=$BUILD/accuracy
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: needs python3-numpy"; exit 0; }
[ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || { echo "skipped: needs Fashion-MNIST"; exit 0; }
mkdir -p "$out" || exit 1
export OPENBLAS_NUM_THREADS=1
for kind in ${KINDS:-shares}; do "$python" $script "$kind" "$out/sparse.txt" "${SEEDS:-1}" || exit 1; done

echo "| rule, 15 % kept | runs | accuracy | to dense | loss |"
echo "|---|---|---|---|---|"
awk -F';' '$2 == 0.15 {
    if (!($1 in runs)) order[++count] = $1
    runs[$1]++; accuracy[$1] += $4; loss[$1] += $5
} END {
    for (i = 1; i <= count; i++) {
        n = order[i]
        mean = accuracy[n] / runs[n]
        printf "| %s | %d | %.2f | %+.2f | %.3f |\n", n, runs[n], mean, mean - accuracy["dense"] / runs["dense"],
               loss[n] / runs[n]
    }
}' "$out/sparse.txt"
echo
echo "| share kept | rule | runs | accuracy, each seed | bytes of dense fp32, fp16 wire |"
echo "|---|---|---|---|---|"
sort -t';' -k1,1 -k2,2g "$out/sparse.txt" | awk -F';' -v elems=234752 -v chunk=512 '
    function line() {
        if (key == "") return
        bytes = 100 * (share * elems * 2 + elems / chunk * 4) / (elems * 4)
        printf "| %g %% | %s | %d | %s | %.1f %% |\n", 100 * share, rule, runs, list, bytes
    }
    $1 != "reduced" && $1 != "local, Nesterov, scored by gradient" { next }
    key != $1 FS $2 { line(); key = $1 FS $2; rule = $1; share = $2; runs = 0; list = "" }
    { runs++; list = list (list == "" ? "" : ", ") $4 }
    END { line() }'
command -v gnuplot >/dev/null || { echo "no plot: needs gnuplot"; exit 0; }
for rule in dense reduced "local, Nesterov, scored by gradient"; do
    awk -F';' -v rule="$rule" '$1 == rule && $2 == 0.15 && $3 == 1 { n = split($6, v, " ")
        for (i = 1; i <= n; i++) print i * 30, v[i] }' "$out/sparse.txt" >"$out/curve-$(echo "$rule" | tr -dc a-zA-Z)"
done
for rule in reduced "local, Nesterov, scored by gradient"; do
    awk -F';' -v rule="$rule" '$1 == rule && $4 > 20 { s[$2] += $4; n[$2]++ }
        END { for (k in s) print 100 * k, s[k] / n[k] }' "$out/sparse.txt" |
        sort -g >"$out/share-$(echo "$rule" | tr -dc a-zA-Z)"
done
gnuplot <<END
set terminal svg size 1000,420 font "sans,14"
set output "$out/sparse.svg"
set multiplot layout 1,2
set key bottom right
set xlabel "share of the chunks sent, %"; set ylabel "test accuracy, %"; set logscale x
set xtics (1, 2, 5, 10, 15, 30)
plot "$out/share-reduced" with linespoints pt 7 lw 2 title "reduced", \
     "$out/share-localNesterovscoredbygradient" with linespoints pt 5 dt 2 lw 2 title "local"
unset logscale x; set key top right; set xtics auto; set xlabel "step"; set ylabel "training loss"; set yrange [0.15:1]
plot "$out/curve-dense" with lines lw 2 title "dense", \
     "$out/curve-reduced" with lines dt 2 lw 2 title "reduced, 15 %", \
     "$out/curve-localNesterovscoredbygradient" with lines dt 3 lw 2 title "local, 15 %"
END
