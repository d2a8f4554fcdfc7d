# The picture of bench_tree.sh: rows "hosts server tree ring", measured, then what the bytes alone take, all in us. At a
# page's full width letters are 14 px high; a line is told by its mark and its name, without colours.
{ n[NR] = $1; for (c = 2; c <= 7; c++) { v[NR, c] = $c / 1e3; if ($c / 1e3 > top) top = $c / 1e3 } }
function x(hosts) { return 90 + (hosts - n[1]) * 730 / (n[NR] > n[1] ? n[NR] - n[1] : 1) }
function y(ms) { return 420 - ms * 340 / top }
function mark(c, at_x, at_y) {
    printf "<path d=\"%s\" transform=\"translate(%.1f %.1f)\" fill=\"%s\"/>\n", shape[c], at_x, at_y, colour[c]
}
function line(c, kind,   i) {
    printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colour[kind], (c > 4) ? dashed : ""
    for (i = 1; i <= NR; i++) printf "%.1f,%.1f ", x(n[i]), y(v[i, c])
    print "\"/>"
    for (i = 1; c <= 4 && i <= NR; i++) mark(c, x(n[i]), y(v[i, c]))
}
END {
    dashed = " stroke-dasharray=\"6 5\" opacity=\"0.7\""
    split("- parameter_server reduction_tree ring", name, " ")
    split("- #c0392b #2471a3 #1e8449", colour, " ")
    shape[2] = "M-4.5 -4.5h9v9h-9z"; shape[3] = "M0 -5.5l5.5 10h-11z"
    shape[4] = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0"
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 500\" font-family=\"sans-serif\""
    print "font-size=\"14\">"
    print "<rect width=\"1000\" height=\"500\" fill=\"#fff\"/>"
    print "<text x=\"20\" y=\"26\" font-size=\"17\">How long it takes to sum " size " over hosts joined by " rate \
        " Mbit/s (measured)</text>"
    print "<text x=\"20\" y=\"60\" font-weight=\"bold\">ms</text>"
    step = 10 ^ int(log(top) / log(10)); if (top / step < 3) step /= 2
    for (ms = 0; ms <= top; ms += step) {
        printf "<line x1=\"90\" x2=\"820\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", y(ms), y(ms)
        printf "<text x=\"82\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", y(ms) + 5, ms
    }
    for (i = 1; i <= NR; i++)
        printf "<text x=\"%.1f\" y=\"442\" text-anchor=\"middle\">%d</text>\n", x(n[i]), n[i]
    print "<text x=\"455\" y=\"466\" text-anchor=\"middle\">hosts</text>"
    for (c = 2; c <= 4; c++) {
        line(c + 3, c); line(c, c)
        sub(/_/, " ", name[c])
        mark(c, 838, y(v[NR, c]))
        printf "<text x=\"850\" y=\"%.1f\">%s</text>\n", y(v[NR, c]) + 5, name[c]
    }
    print "<line x1=\"90\" x2=\"130\" y1=\"486\" y2=\"486\" stroke=\"#555\" stroke-width=\"2\"" dashed "/>"
    print "<text x=\"138\" y=\"491\">what the bytes alone would take, by formula</text>\n</svg>"
}
