# Tables (Markdown) of a report: report.py says what a report is. A table is a function of a Report
# that returns lines; TABLES names those that pages may have. What was not measured is "-".
import glob
import re
import statistics

import report_charts
from report_rows import (
    Missing,
    Report,
    WAYS,
    best_us,
    model_name,
    number,
    ratio,
    size_name,
    table,
    time_of,
)

BEGIN = re.compile(r'^<!-- report: ([a-z-]+) -->$')
END = '<!-- end of report -->'
DEFAULTS = ('openmpi', 'mpich', 'gloo', 'gloo-ring')


# ---- tables ----
def about(report):
    made = report.about
    rounds = ', '.join(
        f'{name} {part["rounds"]}' for name, part in made['parts'].items() if name != 'faults'
    )
    lines = [
        f'Commit {made["commit"]}, {made["date"]}, {made["machine"]}.',
        f'Contenders take turns, and medians of the rounds count; rounds: {rounds}.',
    ]
    failed = [
        f'{row["label"]} ({len(row["values"])} in {where})'
        for (bench, where), rows in report.rows.items()
        if bench == 'failed'
        for row in rows
    ]
    absent = sorted(
        {
            row['label']
            for (bench, _), rows in report.rows.items()
            if bench == 'absent'
            for row in rows
        }
    )
    if absent:
        lines.append(f'Not installed, so not among the peers: {", ".join(absent)}.')
    if failed:
        lines.append(f'Turns that failed and are in no median: {", ".join(failed)}.')
    return lines


def commit(report):
    made = report.about
    return [f'Commit {made["commit"]}, {made["date"]}, {made["machine"]}; medians.']


def sizes_table(report, bench, rows_of):
    """A table a place: sizes are columns, what rows_of(where) names are rows."""
    lines = []
    for where in report.places(bench):
        sizes = report.sizes(bench, where)
        rows = [[title] + [cell(size) for size in sizes] for title, cell in rows_of(where)]
        rows = [row for row in rows if any(cell != '-' for cell in row[1:])]
        lines += ['', f'**{where}**', ''] + table([''] + [size_name(size) for size in sizes], rows)
    return lines[1:] or ['Not measured.']


def memory(report):
    def rows_of(where):
        def us(label):
            return lambda size: report.median('memory', where, label, size)

        ours, program, bound = us('ours'), us('ours-program'), us('bound')

        def best(size, among=None):
            return best_us(report.best('memory', where, [str(size)], among))

        return (
            ('ours', lambda size: time_of(ours(size))),
            ('best peer', lambda size: time_of(best(size))),
            ('which', lambda size: (report.best('memory', where, [str(size)]) or ('', '-'))[1]),
            ('best peer / ours', lambda size: ratio(best(size), ours(size))),
            ('best peer / program\'s memory', lambda size: ratio(best(size), program(size))),
            ('peers\' defaults / ours', lambda size: ratio(best(size, DEFAULTS), ours(size))),
            ('bound / ours', lambda size: ratio(bound(size), ours(size))),
        )

    return sizes_table(report, 'memory', rows_of)


def hosts(report):
    def rows_of(where):
        def us(label):
            return lambda size: report.median('hosts', where, label, size)

        ours, half, limit, sockets = us('ours'), us('ours-fp16'), us('limit'), us('sockets')

        def best(size):
            return best_us(report.best('hosts', where, [str(size)]))

        return (
            ('ours', lambda size: time_of(ours(size))),
            ('best peer', lambda size: time_of(best(size))),
            ('which', lambda size: (report.best('hosts', where, [str(size)]) or ('', '-'))[1]),
            ('best peer / ours', lambda size: ratio(best(size), ours(size))),
            ('of the link, fp32', lambda size: ratio(limit(size), ours(size))),
            ('of the link, fp16', lambda size: ratio(limit(size), half(size))),
            ('plain sockets / ours', lambda size: ratio(sockets(size), ours(size))),
            (
                'ours as a ring',
                lambda size: time_of(report.median('hosts', where, 'ours-ring', size)),
            ),
        )

    return sizes_table(report, 'hosts', rows_of)


def models(report):
    rows = []
    for where in report.places('models'):
        ours, half = (
            report.median('models', where, label, 'step') for label in ('ours', 'ours-fp16')
        )
        limit = report.median('models', where, 'limit', 'step') or report.median(
            'models', where, 'bound', 'fused'
        )
        best = report.best('models', where, WAYS)
        rows.append(
            [
                model_name(where),
                time_of(limit),
                time_of(ours),
                time_of(half),
                time_of(best_us(best)),
                best[1] if best else '-',
                ratio(best_us(best), ours),
                ratio(best_us(best), half),
            ]
        )
    return table(
        [
            'a step',
            'bound or limit',
            'ours',
            'ours, fp16',
            'best peer',
            'which',
            'best peer / ours',
            '/ fp16',
        ],
        rows,
    )


def devices(report):
    rows = []
    for where in report.places('devices'):
        for size in sorted(int(key) for key in report.keys('devices', where, 'one')):
            one, two = (report.median('devices', where, label, size) for label in ('one', 'two'))
            rows.append([where, size_name(size), time_of(one), time_of(two), ratio(one, two)])
    return table(['each device', 'size', 'one device', 'two devices', 'one / two'], rows)


def spread(values):
    return (
        ' / '.join(
            f'{value:.3f}' if value < 0.1 else f'{value:.2f}'
            for value in (min(values), statistics.median(values), max(values))
        )
        if values
        else '-'
    )


def recovery(report):
    rows = [
        [
            where.replace(', quiet', '')
            .replace('over node', 'in shared memory')
            .replace('over tcp', 'over sockets'),
            spread(row['values']),
            str(len(row['values'])),
        ]
        for where in report.places('recovery')
        for row in [report.row('recovery', where, 'outside')]
        if row
    ]
    return table(['ranks', 'min / median / max, s', 'kills'], rows)


def idle(report):
    """A row for each case and size: every setting, and the best fixed one over auto."""
    settings = [
        setting
        for setting in ('auto', 'spin', 'yield', 'sleep')
        if any(report.row('idle', where, setting) for where in report.places('idle'))
    ]
    rows = []
    for where in report.places('idle'):
        for size in sorted(int(key) for key in report.keys('idle', where, 'auto')):
            us = {
                setting: report.median('idle', where, setting, size)
                for setting in settings
                if report.median('idle', where, setting, size) is not None
            }
            fixed = [value for setting, value in us.items() if setting != 'auto']
            rows.append(
                [where, size_name(size)]
                + [time_of(us.get(setting)) for setting in settings]
                + [ratio(min(fixed) if fixed else None, us.get('auto'))]
            )
    return table(['ranks', 'size', *settings, 'best fixed / auto'], rows)


def faults_of(report):
    """Who measured the faults: a sentence."""
    part = report.about['parts'].get('faults')
    if not part:
        return []
    runs = max(
        (
            report.row('faults', where, 'runs')['values'][0]
            for where in report.places('faults')
            if report.row('faults', where, 'runs')
        ),
        default=0,
    )
    if part.get('of'):
        return [f'`make fault-table` of commit {part["of"]}; runs of each fault: {runs}.', '']
    return [f'Commit {report.about["commit"]}; runs of each fault: {runs}.', '']


def faults(report):
    rows = []
    for where in report.places('faults'):
        told, held, runs = (
            report.row('faults', where, label) for label in ('told', 'held', 'runs')
        )
        if not (told and held and runs):
            continue
        how, keeps = (told.get('note', '') + '|').split('|')[:2]
        rows.append(
            [
                f'`{where}`',
                how,
                told['key'],
                spread(told['values']),
                f'{held["values"][0]} of {runs["values"][0]}',
                keeps,
            ]
        )
    return faults_of(report) + table(
        [
            'case',
            'how it is made',
            'bound, s',
            'min / median / max, s',
            'runs that held',
            'what survives',
        ],
        rows,
    )


def plan_errors(report, nodes):
    """(case, where) -> (measured ms, error in percent)"""
    errors = {}
    for where in report.places('plan'):
        if ('ranks' in where) != nodes:
            continue
        for case in report.keys('plan', where, 'measured'):
            measured, predicted = (
                report.median('plan', where, label, case) for label in ('measured', 'predicted')
            )
            if measured and predicted is not None:
                errors[case, where] = measured, (predicted / measured - 1) * 100
    return errors


def plan_said(errors):
    sizes = sorted(abs(error) for _, error in errors.values())
    return (
        f'{len(sizes)} predictions: the median error is {statistics.median(sizes):.1f} %, the worst'
        f' {sizes[-1]:.1f} %.'
    )


PLAN_CASES = {
    'nin': 'NiN, ring, nothing computed',
    'nin-overlap': 'NiN, ring, fp16, overlapped',
    'nin-each': 'NiN, ring, tensor by tensor',
    'nin-tree': 'NiN, tree, fp16',
    'nin-sparse': 'NiN, ring, fp16, 15 % of the chunks',
    'googlenet': 'GoogLeNet, ring, fp16, overlapped',
    'googlenet-each': 'GoogLeNet, ring, fp16, tensor by tensor',
    'googlenet-halve': 'GoogLeNet, halving, fp16',
    'nin-ring': 'NiN, ring, nothing computed',
    'nin-auto': 'NiN, auto, nothing computed',
    'nin-whole': 'NiN, auto, in one buffer',
    'nin-auto-overlap': 'NiN, auto, fp16, overlapped',
    'googlenet-auto': 'GoogLeNet, auto, fp16, tensor by tensor',
}


def plan_table(report, nodes):
    errors = plan_errors(report, nodes)
    if not errors:
        return ['Not measured.']
    places = list(dict.fromkeys(where for _, where in errors))
    cases = [case for case in PLAN_CASES if case in {case for case, _ in errors}]
    rows = [
        [PLAN_CASES[case]]
        + [
            (
                f'{number(errors[case, where][0])}, {errors[case, where][1]:+.1f} %'
                if (case, where) in errors
                else '-'
            )
            for where in places
        ]
        for case in cases
    ]
    return table(['step, ms; error of the prediction'] + places, rows) + ['', plan_said(errors)]


def readme_numbers(report):
    def row(what, bench, where, key, label='ours'):
        ours, best = report.median(bench, where, label, key), report.best(
            bench, where, [key] if key != 'step' else WAYS
        )
        return [
            what,
            time_of(ours),
            f'{time_of(best_us(best))} ({best[1]})' if best else '-',
            ratio(best_us(best), ours),
        ]

    gbit = '1000 Mbit/s'
    rows = [
        row('4 KiB, 2 ranks of a node', 'memory', '2 ranks', '4096'),
        row('2 MiB, 2 ranks of a node', 'memory', '2 ranks', '2097152'),
        row(
            '2 MiB of `malloc()`, 2 ranks of a node', 'memory', '2 ranks', '2097152', 'ours-program'
        ),
        row('2 MiB, 4 ranks on the 2 cores', 'memory', '4 ranks', '2097152'),
        row('a step of ResNet-50, 2 ranks of a node', 'models', 'resnet50, 2 ranks', 'step'),
        row('a step of GPT-2 124M, 2 ranks of a node', 'models', 'gpt2, 2 ranks', 'step'),
        row('4 KiB, 2 hosts, 1 Gbit/s', 'hosts', f'2 hosts, {gbit}', '4096'),
        row('16 MiB, 2 hosts, 1 Gbit/s', 'hosts', f'2 hosts, {gbit}', '16777216'),
        row('4 KiB, 4 hosts on the 2 cores, 1 Gbit/s', 'hosts', f'4 hosts, {gbit}', '4096'),
        row('16 MiB, 4 hosts on the 2 cores, 1 Gbit/s', 'hosts', f'4 hosts, {gbit}', '16777216'),
    ]
    return table(['allreduce of fp32', 'this library', 'fastest peer', 'peer / ours'], rows)


README_FAULTS = (
    (
        'a process is killed',
        ('tcp_kill_worker', 'tcp_kill_coordinator'),
        'all end; with `--elastic` the others continue',
    ),
    (
        'the same, until the others train again',
        ('tcp_elastic_worker', 'tcp_elastic_coordinator'),
        'training continues',
    ),
    (
        'a host is cut off',
        ('tcp_cut_worker',),
        'as for a process that is killed',
    ),
    (
        'a rank stops polling',
        ('tcp_stop_worker',),
        'as for a process that is killed; the rank is named',
    ),
    (
        'rank 0, which has the coordinator, is cut off or stops',
        ('tcp_cut_coordinator', 'tcp_stop_coordinator'),
        'all end; the coordinator is named',
    ),
    (
        'a message is damaged (`link.checksum`)',
        ('tcp_corrupt',),
        'all end; both ends of the connection are named',
    ),
    (
        'ranks have other settings',
        ('join_config', 'join_tensors'),
        'nothing was begun; both values are named',
    ),
)


def readme_faults(report):
    rows = []
    for what, cases, then in README_FAULTS:
        values = [
            value
            for case in cases
            for row in [report.row('faults', case, 'told')]
            if row
            for value in row['values']
        ]
        rows.append(
            [
                what,
                f'{statistics.median(values):.2f} s, {max(values):.2f} s' if values else '-',
                then,
            ]
        )
    return faults_of(report) + table(['what happens', 'told after, median and worst', 'then'], rows)


def readme_plan(report):
    errors = plan_errors(report, False)
    return [plan_said(errors)] if errors else ['Not measured.']


def charts_of(names, folder):
    return lambda report: [
        line for name, alt in names for line in (f'![{alt}]({folder}{name}.svg)', '')
    ][:-1]


MEMORY_2 = (
    'memory-2',
    'Time of an allreduce over its size, 2 ranks of a node: this library beside every peer',
)
HOSTS_2 = (
    'hosts-2',
    (
        'Time of an allreduce over its size, 2 hosts at 1 Gbit/s, beside every peer and the limit'
        ' of the link'
    ),
)
TABLES = {
    'about': about,
    'commit': commit,
    'memory': memory,
    'hosts': hosts,
    'models': models,
    'devices': devices,
    'idle': idle,
    'recovery': recovery,
    'faults': faults,
    'plan': lambda report: plan_table(report, False),
    'plan-nodes': lambda report: plan_table(report, True),
    'readme-numbers': readme_numbers,
    'readme-faults': readme_faults,
    'readme-plan': readme_plan,
    'readme-charts': charts_of((MEMORY_2, HOSTS_2), 'firmware-tests/results/'),
    'peers-charts': charts_of(
        (
            MEMORY_2,
            ('memory-4', 'The same with 4 ranks on 2 cores'),
            HOSTS_2,
            ('hosts-4', 'The same between 4 hosts on 2 cores'),
            ('models', 'A step of ResNet-50 and GPT-2, ours beside the best peer'),
        ),
        '',
    ),
    'recovery-chart': charts_of(
        (('recovery', 'Seconds from kill -9 until the survivors train again'),), ''
    ),
}


# ---- pages ----
def pages():
    return ['README.md'] + sorted(glob.glob('firmware-tests/results/*.md'))


def page_fill(text, report, page):
    """The page with its tables made anew, or without a report as it is, if its marks are right."""
    made, lines, inside = Report(report) if report else None, [], None
    for line in text.split('\n'):
        begin = BEGIN.match(line)
        if begin:
            if inside or begin.group(1) not in TABLES:
                raise Missing(
                    f'{page}: "{line}": '
                    + (
                        f'{inside} has not ended'
                        if inside
                        else f'tables are {", ".join(sorted(TABLES))}'
                    )
                )
            inside = begin.group(1)
            lines += [line] + (['', *TABLES[inside](made), ''] if made else [])
        elif line == END:
            if not inside:
                raise Missing(f'{page}: "{END}" ends nothing')
            inside = None
            lines.append(line)
        elif inside is None or made is None:
            lines.append(line)
    if inside:
        raise Missing(f'{page}: {inside} has no line "{END}"')
    return '\n'.join(lines)


def write_apart(report, folder):
    """Everything in one page, and the charts beside it."""
    made = Report(report)
    with open(f'{folder}/tables.md', 'w', encoding='utf-8') as file:
        for name, lines in TABLES.items():
            if not name.endswith(('chart', 'charts')):
                file.write(f'## {name}\n\n' + '\n'.join(lines(made)) + '\n\n')
    report_charts.charts_write(made, folder)
