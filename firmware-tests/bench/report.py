#!/usr/bin/env python3
# Numbers of one commit by one command: `make report`, or `make report QUICK=1`.
#
#     report.py measure [--quick] [--parts "memory plan"]   benchmarks, then tables and charts
#     report.py write FILE [--into FOLDER]                  tables and charts of a stored report
#     report.py check              the pages have the tables of results/report.json
#
# Each part below runs one of the scripts that are there anyway, which append what they measured to
# the file ROWS, a JSON object a line (rows_keep in bench_parts.sh). A part that is done is kept in
# $BUILD/report, so the command goes on where it was stopped; parts of another commit are measured
# anew. Once all parts of a full report are there, firmware-tests/results/report.json and the charts
# beside it are written, and the tables in README.md and results/*.md between the lines
# "<!-- report: NAME -->" and "<!-- end of report -->". A quick report is written to
# $BUILD/report-quick and nowhere else.
import argparse
import datetime
import glob
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import report_charts
import report_pages
from report_rows import Missing, Report

BUILD = os.environ.get('BUILD', 'build')
BENCH = 'firmware-tests/bench'
RESULTS = 'firmware-tests/results'
BENCHES = {
    'memory': 'us',
    'models': 'us',
    'hosts': 'us',
    'devices': 'us',
    'idle': 'us',
    'plan': 'ms',
    'recovery': 's',
    'faults': 's',
    'failed': 'turns',
    'absent': 'turns',
}
MEMORY_SIZES = '8 64 512 4096 32768 262144 2097152 16777216'
# Settings of the peers that were the fastest with large data.
LARGE_PEERS = 'bound openmpi+heap openmpi-ring+heap openmpi-ucx+heap mpich gloo-ring'
LARGE_PEERS_HOSTS = 'openmpi-ring openmpi-ucx gloo-chunked'
HOSTS_SIZES = '8 512 4096 32768 262144 2097152 16777216'

# Name: commands, the seconds that a full run takes on a quiet machine of 2 cores (what the
# estimates below say), what a full run has in its environment, and what a quick one has beside
# that. `root`: without it the part measures nothing.
PARTS = {
    'memory': {
        'run': ['sh', f'{BENCH}/bench_peers.sh'],
        'seconds': 180,
        'rounds': 5,
        'full': {'RANKS': '2 4', 'SIZES': MEMORY_SIZES, 'MODELS': '', 'SECONDS_EACH': '0.05'},
        'quick': {'RANKS': '2', 'SIZES': '64 4096 262144 2097152'},
    },
    'memory-models': {
        'run': ['sh', f'{BENCH}/bench_peers.sh'],
        'seconds': 150,
        'rounds': 3,
        'full': {'RANKS': '2', 'SIZES': '', 'MODELS': 'resnet50 gpt2', 'PEERS': LARGE_PEERS},
        'quick': {'MODELS': 'resnet50'},
    },
    'memory-models-4': {
        'run': ['sh', f'{BENCH}/bench_peers.sh'],
        'seconds': 60,
        'rounds': 3,
        'full': {'RANKS': '4', 'SIZES': '', 'MODELS': 'resnet50', 'PEERS': LARGE_PEERS},
        'quick': {},
    },
    'hosts': {
        'run': ['sh', f'{BENCH}/bench_net.sh'],
        'seconds': 400,
        'rounds': 5,
        'root': True,
        'full': {'HOSTS': '2 4', 'PARTS': 'sizes', 'SIZES': HOSTS_SIZES},
        'quick': {'HOSTS': '2', 'SIZES': '8 4096 262144 2097152'},
    },
    'hosts-fast': {
        'run': ['sh', f'{BENCH}/bench_net.sh'],
        'seconds': 75,
        'rounds': 5,
        'root': True,
        'full': {'HOSTS': '4', 'PARTS': 'sizes', 'SIZES': '8 4096 262144', 'RATE_MBIT': '0'},
        'quick': {'HOSTS': '2', 'SIZES': '8 262144'},
    },
    'hosts-nodes': {
        'run': ['sh', f'{BENCH}/bench_net.sh'],
        'seconds': 60,
        'rounds': 3,
        'root': True,
        'full': {
            'HOSTS': '2',
            'PARTS': 'nodes',
            'SIZES': '32768 2097152 16777216',
            'MODELS': '',
        },
        'quick': {'SIZES': '2097152'},
    },
    'hosts-models': {
        'run': ['sh', f'{BENCH}/bench_net.sh'],
        'seconds': 75,
        'rounds': 1,
        'root': True,
        'full': {
            'HOSTS': '4',
            'PARTS': 'models',
            'MODELS': 'resnet50',
            'MODEL_ROUNDS': '1',
            'PEERS': LARGE_PEERS_HOSTS,
        },
        'quick': {'MODELS': ''},
    },
    'devices': {
        'run': ['sh', f'{BENCH}/bench_net.sh'],
        'seconds': 40,
        'rounds': 3,
        'root': True,
        'full': {'HOSTS': '2', 'PARTS': 'devices', 'RATE_MBIT': '300'},
        'quick': {},
    },
    'recovery': {
        'run': [
            'sh',
            '-c',
            (
                'for n in $RANKS; do for way in node tcp; do '
                f'python3 {BENCH}/bench_recovery.py "$BUILD" $n $ROUNDS $way || code=1; '
                'done; done; exit ${code:-0}'
            ),
        ],
        'seconds': 90,
        'rounds': 10,
        'full': {'RANKS': '3 4 8'},
        'quick': {'RANKS': '3'},
    },
    # What `make fault-table` left in $FAULTS where that is said, else each case ROUNDS times.
    'faults': {
        'run': [
            'sh',
            '-c',
            (
                '[ -n "${FAULTS:-}" ] || make --no-print-directory -s fault-table RUNS=$ROUNDS; '
                'LAB_FOLDER=${FAULTS:-$LAB_FOLDER} sh firmware-tests/lab/lab.sh rows >>"$ROWS"'
            ),
        ],
        'seconds': 130,
        'rounds': 3,
        'root': True,
        'full': {'LABS': '4'},
        'quick': {'LABS': '1', 'T': 'tcp_kill_*'},
    },
    'idle': {
        'run': ['sh', f'{BENCH}/bench_idle.sh'],
        'seconds': 60,
        'rounds': 3,
        'root': True,
        'full': {
            'CASES': 'cores oversubscribed hosts trainer',
            'SETTINGS': 'auto yield sleep',
            'RANKS': '4',
            'HOSTS': '4',
            'SECONDS_EACH': '0.2',
        },
        'quick': {'CASES': 'cores'},
    },
    'plan': {
        'run': ['sh', f'{BENCH}/bench_plan.sh'],
        'seconds': 180,
        'rounds': 3,
        'root': True,
        'full': {'HOSTS': '4 8', 'RATES': '300 1000', 'SAMPLES': '', 'SECONDS_EACH': '1'},
        'quick': {'HOSTS': '4', 'CASES': 'nin googlenet', 'SECONDS_EACH': '0.3', 'RATES': '300'},
    },
    'plan-nodes': {
        'run': ['sh', f'{BENCH}/bench_plan.sh'],
        'seconds': 60,
        'rounds': 3,
        'root': True,
        'full': {
            'HOSTS': '2',
            'RANKS': '2',
            'RATES': '300 1000',
            'SAMPLES': '',
            'SECONDS_EACH': '1',
        },
        'quick': {'RATES': '1000', 'CASES': 'nin-auto', 'SECONDS_EACH': '0.3'},
    },
}
QUICK_LEFT_OUT = {'hosts-models', 'memory-models-4'}  # a step of them takes a second and more


class Bad(Exception):
    """A report that is not one: its text says where, what, and what is allowed."""


def row_check(row, where):
    if not isinstance(row, dict):
        raise Bad(f'{where}: a row is an object, not {row!r}')
    for name in ('bench', 'where', 'label', 'key', 'unit'):
        if not isinstance(row.get(name), str) or not row[name]:
            raise Bad(f'{where}: "{name}" must be a text that is not empty, not {row.get(name)!r}')
    if row['bench'] not in BENCHES:
        raise Bad(f'{where}: "bench" is one of {", ".join(BENCHES)}, not {row["bench"]!r}')
    if row['unit'] != BENCHES[row['bench']]:
        raise Bad(
            f'{where}: the unit of {row["bench"]} is {BENCHES[row["bench"]]}, not {row["unit"]!r}'
        )
    values = row.get('values')
    if not isinstance(values, list):
        raise Bad(f'{where}: "values" must be a list of numbers, not {values!r}')
    for value in values:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
            or value < 0
        ):
            raise Bad(f'{where}: a value is a finite number, 0 or more, not {value!r}')
    if not isinstance(row.get('note', ''), str):
        raise Bad(f'{where}: "note" must be a text, not {row["note"]!r}')
    return row


def rows_read(path):
    rows = []
    with open(path, encoding='utf-8') as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(row_check(json.loads(line), f'{path}:{number}'))
            except json.JSONDecodeError as error:
                raise Bad(f'{path}:{number}: not JSON: {error}') from error
    return rows


def report_check(report, where):
    """The whole of a report; raises Bad."""
    if not isinstance(report, dict) or report.get('format') != 1:
        raise Bad(f'{where}: a report is an object whose "format" is 1')
    if not re.fullmatch(r'[0-9a-f]{7,40}', str(report.get('commit'))):
        raise Bad(f'{where}: "commit" must be 7 to 40 hex digits, not {report.get("commit")!r}')
    if not re.fullmatch(r'\d{4}-\d\d-\d\d', str(report.get('date'))):
        raise Bad(f'{where}: "date" must be YYYY-MM-DD, not {report.get("date")!r}')
    if report.get('kind') not in ('full', 'quick'):
        raise Bad(f'{where}: "kind" is full or quick, not {report.get("kind")!r}')
    if not isinstance(report.get('machine'), str):
        raise Bad(f'{where}: "machine" must be a text')
    parts = report.get('parts')
    if not isinstance(parts, dict) or not parts:
        raise Bad(f'{where}: "parts" must be an object that is not empty')
    for name, part in parts.items():
        if name not in PARTS:
            raise Bad(f'{where}: parts are {", ".join(PARTS)}, not {name!r}')
        if (
            not isinstance(part, dict)
            or not isinstance(part.get('rounds'), int)
            or part['rounds'] < 1
        ):
            raise Bad(f'{where}: part {name}: "rounds" must be a number above 0')
        if not re.fullmatch(r'[0-9a-f]{7,40}', part.get('of', '0000000')):
            raise Bad(f'{where}: part {name}: "of" is the commit that it measured')
        if not isinstance(part.get('rows'), list):
            raise Bad(f'{where}: part {name}: "rows" must be a list')
        for number, row in enumerate(part['rows'], 1):
            row_check(row, f'{where}: part {name}, row {number}')
    return report


def report_read(path):
    try:
        with open(path, encoding='utf-8') as file:
            return report_check(json.load(file), path)
    except json.JSONDecodeError as error:
        raise Bad(f'{path}: not JSON: {error}') from error
    except OSError as error:
        raise Bad(f'{path}: {error.strerror}') from error


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def commit_now():
    """HEAD, if what is measured is what it has."""
    commit = output('git', 'rev-parse', '--short=8', 'HEAD')
    if not commit:
        raise Bad('report: this is no git checkout, so the numbers would be of no commit')
    changed = [
        line[3:]
        for line in output('git', 'status', '--porcelain').splitlines()
        if not line.endswith('.md') and not line[3:].startswith(RESULTS)
    ]
    return commit, changed


def machine_now():
    with open('/proc/cpuinfo', encoding='utf-8') as file:
        names = re.findall(r'^model name\s*: (.*)', file.read(), re.M)
    return (
        f'{len(os.sched_getaffinity(0))} cores of {names[0] if names else os.uname().machine}, '
        f'Linux {os.uname().release.split("-")[0]}'
    )


def kept_read(name, folder, commit):
    """The part as it was measured before, of this commit; else None."""
    path = f'{folder}/{name}.json'
    if not os.path.exists(path):
        return None
    with open(path, encoding='utf-8') as file:
        part = json.load(file)
    return part if part.get('commit') == commit else None


def session_signal(session, number):
    """To all of a session: timeout(1) has what it runs in a process group of its own."""
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path, encoding='utf-8', errors='replace') as file:
                fields = file.read().rpartition(')')[2].split()
            if int(fields[3]) == session:
                os.kill(int(path.split('/')[2]), number)
        except (OSError, IndexError):  # it has ended
            pass


def command_run(name, env, out, limit_s):
    """The exit code of a part's command, whose processes all end with it or with this program."""
    with open(out, 'wb') as said:
        job = subprocess.Popen(
            PARTS[name]['run'],
            env=env,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return job.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f'report: {name} has not ended after {limit_s} s: stopped', file=sys.stderr)
            return 124
        finally:
            if job.poll() is None:
                session_signal(job.pid, signal.SIGTERM)  # traps take the namespaces down
                try:
                    job.wait(20)
                except subprocess.TimeoutExpired:
                    pass
                session_signal(job.pid, signal.SIGKILL)
                job.wait()


def faults_commit():
    """Of what `make fault-table` left in $FAULTS, or None: the report measures them itself."""
    folder = os.environ.get('FAULTS')
    if not folder:
        return None
    try:
        with open(f'{folder}/commit', encoding='utf-8') as file:
            commits = file.read().split()
    except OSError as error:
        raise Bad(
            f'report: FAULTS={folder} is a folder of make fault-table, which has a file "commit":'
            f' {error.strerror}'
        ) from error
    if len(commits) != 1:
        raise Bad(f'report: {folder}/commit names one commit, not {" ".join(commits) or "none"}')
    return commits[0]


def part_measure(name, quick, folder, commit):
    """The part as it was measured now; None where it can't be."""
    part = PARTS[name]
    if part.get('root') and os.geteuid() != 0:
        print(f'report: {name} needs root, for network namespaces', file=sys.stderr)
        return None
    rows, out = f'{folder}/{name}.rows', f'{folder}/{name}.out'
    rounds = 1 if quick else int(os.environ.get('ROUNDS') or part['rounds'])
    pieces = f'{folder}/{name}.{commit}.kept'  # of a part that goes on by itself
    subprocess.run(['rm', '-rf', rows, *([pieces] if quick else [])], check=True)
    env = {
        **os.environ,
        'BUILD': BUILD,
        'ROWS': os.path.abspath(rows),
        'ROUNDS': str(rounds),
        'MODEL_ROUNDS': '1',
        'KEPT': pieces,
        'LAB_FOLDER': pieces,
        **part['full'],
        **(part['quick'] if quick else {}),
    }
    begun = time.monotonic()
    code = command_run(name, env, out, 120 + 3 * part['seconds'])
    seconds = round(time.monotonic() - begun)
    found = rows_read(rows) if os.path.exists(rows) else []
    if not any(row['bench'] not in ('failed', 'absent') for row in found):
        print(f'report: {name} measured nothing (exit code {code}): see {out}', file=sys.stderr)
        return None
    if code != 0:
        print(f'report: {name} ended with exit code {code}: see {out}', file=sys.stderr)
    result = {'commit': commit, 'rounds': rounds, 'exit': code, 'seconds': seconds, 'rows': found}
    if name == 'faults' and faults_commit():
        result['of'] = faults_commit()
    print(f'report: {name} took {seconds} s', file=sys.stderr)
    with open(f'{folder}/{name}.json', 'w', encoding='utf-8') as file:
        json.dump(result, file)
    return result


def parts_measure(names, quick, folder, commit):
    """What is kept of this commit, and the rest measured one after the other: name -> part."""
    parts = {name: commit and kept_read(name, folder, commit) for name in names}
    todo = [name for name in names if not parts[name]]
    for name in names:
        if parts[name]:
            print(f'report: {name} was measured before', file=sys.stderr)
    for at, name in enumerate(todo):
        seconds = [PARTS[later]['seconds'] for later in todo[at:]]
        about = f', about {seconds[0]} s of {math.ceil(sum(seconds) / 60)} min that are left'
        print(f'report: {name}{"" if quick else about} ..', file=sys.stderr)
        try:
            parts[name] = part_measure(name, quick, folder, commit)
        except Bad as error:  # the others are measured all the same
            print(f'report: {name}: {error}', file=sys.stderr)
    return {name: parts[name] for name in names if parts[name]}


def measure(quick, wanted):
    commit, changed = commit_now()
    if changed and not quick:
        raise Bad(
            f'report: a full report is of a commit, and the tree differs from {commit}: '
            f'{" ".join(changed[:5])}'
        )
    names = [name for name in PARTS if not (quick and name in QUICK_LEFT_OUT)]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise Bad(f'report: no part {unknown[0]!r}; there are: {" ".join(PARTS)}')
    folder = f'{BUILD}/report-quick' if quick else f'{BUILD}/report'
    os.makedirs(folder, exist_ok=True)
    faults_commit()
    parts = {
        name: kept_read(name, folder, commit)
        for name in names
        if wanted and name not in wanted and not changed
    }
    parts.update(
        parts_measure(
            [name for name in names if not wanted or name in wanted],
            quick,
            folder,
            commit,
        )
    )
    parts = {
        name: {key: value for key, value in parts[name].items() if key != 'commit'}
        for name in names
        if parts.get(name)
    }
    report = {
        'format': 1,
        'kind': 'quick' if quick else 'full',
        'commit': commit,
        'machine': machine_now(),
        'date': datetime.date.today().isoformat(),
        'parts': parts,
    }
    report_check(report, 'report')
    missing = [name for name in names if name not in parts]
    path = f'{folder}/report.json'
    with open(path, 'w', encoding='utf-8') as file:
        file.write(report_text(report))
    report_pages.write_apart(report, folder)
    print(f'report: {path}, {folder}/tables.md and the charts beside it are written')
    if missing:
        print(
            f'report: not measured yet: {" ".join(missing)}'
            + ('' if quick else f'; the pages wait for them, or: report.py write --partial {path}')
        )
        return int(any(name in missing for name in wanted or names))
    if not quick:
        write_tree(report)
    return 0


def report_text(report):
    """One row a line, so that git shows what changed."""
    head = {key: value for key, value in report.items() if key != 'parts'}
    parts = []
    for name, part in report['parts'].items():
        rows = ',\n   '.join(json.dumps(row) for row in part['rows'])
        rest = json.dumps({key: value for key, value in part.items() if key != 'rows'})[1:-1]
        parts.append(f'  {json.dumps(name)}: {{{rest}, "rows": [\n   {rows}]}}')
    return json.dumps(head)[:-1] + ', "parts": {\n' + ',\n'.join(parts) + '}}\n'


def write_tree(report):
    with open(f'{RESULTS}/report.json', 'w', encoding='utf-8') as file:
        file.write(report_text(report))
    report_charts.charts_write(Report(report), RESULTS)
    for page in report_pages.pages():
        with open(page, encoding='utf-8') as file:
            text = file.read()
        changed = report_pages.page_fill(text, report, page)
        if changed != text:
            with open(page, 'w', encoding='utf-8') as file:
                file.write(changed)
            print(f'report: {page} has its tables')


def check():
    """What stands in the pages is what the stored report says, if there is one."""
    path, code = f'{RESULTS}/report.json', 0
    report = report_read(path) if os.path.exists(path) else None
    for page in report_pages.pages():
        with open(page, encoding='utf-8') as file:
            text = file.read()
        if report_pages.page_fill(text, report, page) != text:
            print(f'{page}: a table is not that of {path}; run: report.py write {path}')
            code = 1
    return code


def main():
    parser = argparse.ArgumentParser(
        description='benchmarks, their tables and charts, of one commit'
    )
    commands = parser.add_subparsers(dest='command', required=True)
    run = commands.add_parser('measure')
    run.add_argument('--quick', action='store_true')
    run.add_argument('--parts', default='')
    write = commands.add_parser('write')
    write.add_argument('file')
    write.add_argument(
        '--into', help='a folder; without it the pages of the tree, by a full report alone'
    )
    write.add_argument('--partial', action='store_true', help='the pages, though parts are missing')
    commands.add_parser('check')
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended, too
    try:
        if args.command == 'measure':
            report_charts.gnuplot_need()
            return measure(args.quick, args.parts.split())
        if args.command == 'check':
            return check()
        report = report_read(args.file)
        if args.into:
            os.makedirs(args.into, exist_ok=True)
            report_pages.write_apart(report, args.into)
        elif report['kind'] != 'full' or (set(PARTS) - set(report['parts']) and not args.partial):
            raise Bad(
                f'{args.file}: only a full report with all of its parts goes into the pages; '
                '--into FOLDER writes it apart, --partial says of the rest that it was not measured'
            )
        else:
            write_tree(report)
        return 0
    except (Bad, Missing) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('report: stopped; the same command goes on from here', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
