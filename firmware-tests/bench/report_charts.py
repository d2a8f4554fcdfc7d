# Charts (SVG by gnuplot) of a report, readable on white and on black.
import re
import shutil
import statistics
import subprocess

from report_rows import Missing, WAYS, best_us, model_name, size_name

COLORS = (
    '#0a7f5a',
    '#c2410c',
    '#6d28d9',
    '#0369a1',
    '#a16207',
    '#be185d',
    '#4d7c0f',
    '#7c8795',
    '#b45309',
    '#1d4ed8',
)
STYLE = '''<style>
.page { fill: #ffffff }
g[color="black"] { color: #57606a } text { fill: #24292f }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 }
  g[color="black"] { color: #8b949e } text { fill: #e6edf3 }
}
</style>
'''
PAGE = '<rect width="100%" height="100%" class="page"/>\n'


def gnuplot_need():
    if not shutil.which('gnuplot'):
        raise Missing(
            'report: needs gnuplot for its charts: apt-get install gnuplot-nox (make deps does)'
        )


def gnuplot(path, text):
    gnuplot_need()
    head = (
        'set terminal svg size 760,540 dynamic font "sans-serif,13" noenhanced\n'
        'set key bmargin center horizontal maxrows 5 samplen 2 font ",11"\nset rmargin 6\nset grid\n'
    )
    done = subprocess.run(
        ['gnuplot'], input=head + text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or '</svg>' not in done.stdout:
        raise Missing(f'report: gnuplot made no {path}: {done.stderr.strip()[:300]}')
    svg = re.sub(r'<title>.*?</title>\n?|<desc>.*?</desc>\n?', '', done.stdout, flags=re.S)
    end = svg.index('>', svg.index('<svg')) + 1
    with open(path, 'w', encoding='utf-8') as file:
        file.write(svg[:end] + '\n' + STYLE + PAGE + svg[end:].lstrip('\n'))


def lines_chart(report, path, title, bench, where, fastest=True):
    sizes = report.sizes(bench, where)
    named = [
        ('ours', 'this library', 'lw 3'),
        ('ours-program', 'this library, memory of malloc()', 'lw 2 dt 2'),
        ('ours-fp16', 'this library, fp16', 'lw 2 dt 2'),
        ('limit', 'limit of the link', 'lw 1 dt 3'),
        ('bound', 'limit of the memory', 'lw 1 dt 3'),
    ]
    named += [(peer, peer, 'lw 1') for peer in report.peers(bench, where)]
    blocks, plots = [], []
    for at, (label, shown, style) in enumerate(named):
        points = [(size, report.median(bench, where, label, size)) for size in sizes]
        points = [(size, us) for size, us in points if us]
        if not points:
            continue
        color = (
            COLORS[0] if label.startswith('ours') else COLORS[1 + at % (len(COLORS) - 1)]
        )  # ours are one color
        blocks.append(
            f'$d{at} << EOD\n' + ''.join(f'{size} {us}\n' for size, us in points) + 'EOD\n'
        )
        plots.append(
            f'$d{at} using 1:2 with linespoints {style} pt 7 ps 0.4 lc rgb "{color}" '
            f'title "{shown}"'
        )
    best = [(size, best_us(report.best(bench, where, [str(size)]))) for size in sizes]
    best = [(size, us) for size, us in best if us]
    if best and fastest:
        blocks.append('$best << EOD\n' + ''.join(f'{size} {us}\n' for size, us in best) + 'EOD\n')
        plots.append('$best using 1:2 with lines lw 3 dt 4 lc rgb "#57606a" title "best peer"')
    if not plots:
        return
    tics = ', '.join(f'"{size_name(size)}" {size}' for size in sizes)
    gnuplot(
        path,
        (
            f'set title "{title}"\nset logscale x 2\nset logscale y\nset format y "%g"\n'
            'set ylabel "us"\nset offsets graph 0.03, graph 0.03, 0, 0\n'
            f'set xtics ({tics}) rotate by -40\n{"".join(blocks)}plot {", ".join(plots)}\n'
        ),
    )


def models_chart(report, path):
    rows = []
    for where in report.places('models'):
        ours, half = (
            report.median('models', where, label, 'step') for label in ('ours', 'ours-fp16')
        )
        best = best_us(report.best('models', where, WAYS))
        if ours:
            rows.append((model_name(where), ours, half, best))
    if not rows:
        return
    data = ''.join(
        f'"{name}" ' + ' '.join(f'{value / 1e3 if value else "NaN"}' for value in values) + '\n'
        for name, *values in rows
    )
    shown = [
        (2 + at, title, color)
        for at, (title, color) in enumerate(
            (
                ('this library', COLORS[0]),
                ('this library, fp16', '#6fbfa2'),
                ('best peer', '#8b949e'),
            )
        )
        if any(row[1 + at] for row in rows)
    ]
    plots = ', '.join(
        f'$d using {column}:xtic(1) title "{title}" lc rgb "{color}"'
        for column, title, color in shown
    )
    gnuplot(
        path,
        (
            'set title "A step of a model, ms (log), shorter is better"\nset logscale y\nset'
            ' format y "%g"\nset style data histogram\nset style histogram clustered gap 1\nset'
            ' style fill solid 0.9\nset xtics rotate by -25\nset ylabel "ms"\n$d <<'
            f' EOD\n{data}EOD\nplot {plots}\n'
        ),
    )


def recovery_chart(report, path):
    ways = {}
    for where in report.places('recovery'):
        found, row = re.match(r'(\d+) ranks over (\w+)', where), report.row(
            'recovery', where, 'outside'
        )
        if found and row and row['values']:
            ways.setdefault(found.group(2), []).append((int(found.group(1)), row['values']))
    if not ways:
        return
    blocks, plots = [], []
    for at, (way, points) in enumerate(sorted(ways.items())):
        name = {'node': 'shared memory', 'tcp': 'sockets'}.get(way, way)
        blocks.append(
            f'$d{at} << EOD\n'
            + ''.join(
                f'{ranks + 0.12 * at} {statistics.median(values)} {min(values)} {max(values)}\n'
                for ranks, values in sorted(points)
            )
            + 'EOD\n'
        )
        plots.append(
            f'$d{at} using 1:2:3:4 with yerrorbars pt 7 lw 2 lc rgb "{COLORS[at]}" title "{name}"'
        )
    tics = ', '.join(
        f'"{ranks}" {ranks}'
        for ranks in sorted({ranks for points in ways.values() for ranks, _ in points})
    )
    gnuplot(
        path,
        (
            'set title "From kill -9 of a rank until the others train again: min, median, max"\n'
            'set ylabel "s"\nset key inside top left vertical\n'
            f'set xlabel "ranks"\nset xtics ({tics})\nset yrange [0:*]\nset offsets 1, 1, 0, 0\n'
            f'{"".join(blocks)}plot {", ".join(plots)}\n'
        ),
    )


def charts_write(made, folder):
    for ranks in ('2', '4'):
        lines_chart(
            made,
            f'{folder}/memory-{ranks}.svg',
            f'Allreduce in shared memory, {ranks} ranks on 2 cores',
            'memory',
            f'{ranks} ranks',
        )
        lines_chart(
            made,
            f'{folder}/hosts-{ranks}.svg',
            f'Allreduce between {ranks} hosts, 1 Gbit/s',
            'hosts',
            f'{ranks} hosts, 1000 Mbit/s',
        )
    models_chart(made, f'{folder}/models.svg')
    recovery_chart(made, f'{folder}/recovery.svg')
