#!/usr/bin/env python3
"""What the control plane must hold and what takes long: `make proofs` (root), four hours of the processor.

proofs.py run [PART ..]     parts of the table below, JOBS=3 at once, MINUTES=.. at most
proofs.py table             what was measured, as Markdown
proofs.py list              the parts

A part is some commands. It holds if all of them end with 0. What they print is kept in $BUILD/proofs/PART.log, and that
a part was done in $BUILD/proofs/PART.json, together with the git tree of lib/control/: a part that was done with the
lib/control/ of now is not done again. So a run may be ended, and goes on where it was. Parts that only compute have the
lowest priority.
"""
import concurrent.futures
import datetime
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

BUILD = os.environ.get('BUILD', 'build')
OUT = BUILD + '/proofs'
TESTS = BUILD + '/firmware-tests'
CHAOS_S, CHAOS_PIECES = 120, 10
LAB = f'LAB_FOLDER={OUT}/lab'
OUTAGE = f'python3 firmware-tests/lab/coordinator_outage.py {BUILD}'


def suite(name, settings=''):
    return f'{settings} sh firmware-tests/control/test_{name}.sh'.strip()


def chaos(place, seed):
    return [f'PLACE={place} KEEP={OUT}/chaos-{place} sh firmware-tests/lab/chaos.sh {CHAOS_S} {seed + n}'
            for n in range(CHAOS_PIECES)]


# What is done: its commands. Names that begin with `sim` only compute.
PARTS = {
    'faults': [' & '.join(f'LAB={lab}/4 RUNS=20 {LAB} KEEP={OUT}/lab-failed sh firmware-tests/lab/lab.sh >/dev/null'
                          for lab in (1, 2, 3, 4)) + ' & wait',
               f'{LAB} sh firmware-tests/lab/lab.sh table',
               f'{LAB} sh firmware-tests/lab/lab.sh rows | python3 firmware-tests/lab/proofs.py faults'],
    'chaos-run': chaos('run', 1100),
    'chaos-own': chaos('own', 1200),
    'chaos-rank0': chaos('rank0', 1300),
    **{f'outage-{kind}-{seconds}': [f'KEEP={OUT}/outages {OUTAGE} {kind} {seconds} 20 {seconds}']
       for seconds in (20, 5, 1) for kind in ('stop', 'kill', 'cut')},
    **{f'regroup-{kind}-{seconds}': [f'KEEP={OUT}/outages {OUTAGE} {kind} {seconds} 20 {seconds} regroup']
       for seconds in (8, 2) for kind in ('stop', 'kill', 'cut')},
    'cuts': [suite('cuts', 'RUNS=20')],
    'survivors': [suite('survivors')] * 5,
    'again': [suite('again', 'JOBS=100')],
    'rejoin': [suite('rejoin'), suite('grow'), suite('elastic')],
    'stopped': [f'python3 firmware-tests/lab/half_stopped.py {BUILD} 20'],
    'loss': [suite('loss', 'RUNS=10')],
    'sim-states': [f'{TESTS}/program_states 600', f'{TESTS}/program_states 600 10 1000000007'],
    'sim-planted': ['python3 firmware-tests/control/mutants.py planted'],
    'sim-mutants': ['python3 firmware-tests/control/mutants.py 200 1'],
    'sim-edges': [f'JOBS=1000 {TESTS}/test_edges'],
    'sim-control': [f'for t in $(grep -l GF_TEST_SEEDS firmware-tests/control/test_*.c); do t=${{t##*/}}; '
                    f'GF_TEST_SEEDS=20000 {TESTS}/${{t%.c}} || exit 1; done', f'{TESTS}/test_control_many'],
    'sim-soak': [f'{TESTS}/soak_main 600'],
}
started = set()  # processes of this run
is_ending = threading.Event()


def of_now():
    """the git tree of lib/control/, and the commit; "changed" where it differs from both"""
    def git(*arguments):
        return subprocess.run(['git', *arguments], capture_output=True, text=True).stdout.strip()
    if git('status', '--porcelain', '--untracked-files=no', 'lib/control'):
        return 'changed', 'changed'
    return git('rev-parse', 'HEAD:lib/control'), git('rev-parse', '--short=8', 'HEAD')


def done(part):
    try:
        with open(f'{OUT}/{part}.json') as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def run_part(part, until, tree, commit):
    if time.monotonic() > until:
        return
    began, codes = time.monotonic(), []
    with open(f'{OUT}/{part}.log', 'w') as log:
        for command in PARTS[part]:
            if is_ending.is_set():
                return
            print(f'$ {command}', file=log, flush=True)
            one = subprocess.Popen(['nice', '-n', '19' if part.startswith('sim') else '0', 'sh', '-c', command],
                                   stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True, env=dict(os.environ, BUILD=BUILD))
            started.add(one)
            codes.append(one.wait())
            started.discard(one)
    with open(f'{OUT}/{part}.log', errors='replace') as log:
        lines = [line.strip() for line in log if line.strip() and not line.startswith('$ ')]
    result = {'held': sum(code == 0 for code in codes), 'of': len(codes), 'said': lines[-1] if lines else '',
              'seconds': round(time.monotonic() - began), 'tree': tree, 'commit': commit,
              'at': datetime.datetime.now().strftime('%Y-%m-%d %H:%M')}
    with open(f'{OUT}/{part}.json', 'w') as file:
        json.dump(result, file)
    print(f'{"ok" if result["held"] == result["of"] else "not ok"} {part}, {result["seconds"]} s: '
          f'{result["held"]} of {result["of"]}; {result["said"]}', flush=True)


def end(_number, _frame):
    is_ending.set()
    for one in list(started):
        try:
            os.killpg(one.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    os._exit(130)


def run(patterns):
    os.makedirs(OUT, exist_ok=True)
    tree, commit = of_now()
    wanted = [part for part in PARTS if not patterns or any(fnmatch.fnmatch(part, p) for p in patterns)]
    if not wanted:
        sys.exit(f'proofs.py: no part is called so; there are: {" ".join(PARTS)}')
    to_do = [part for part in wanted if tree == 'changed' or (done(part) or {}).get('tree') != tree]
    for part in wanted:
        if part not in to_do:
            print(f'{part}: done at {done(part)["commit"]}')
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    until = time.monotonic() + 60 * float(os.environ.get('MINUTES') or 600)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('JOBS') or 3)) as pool:
        for future in [pool.submit(run_part, part, until, tree, commit) for part in to_do]:
            future.result()
    results = [done(part) for part in wanted]
    return all(result and result['held'] == result['of'] for result in results)


def table():
    print('| part | commands that ended with 0 | what it says last | s | commit |\n|---|---|---|---|---|')
    for part in PARTS:
        result = done(part)
        if result:
            said = re.sub(r'\|', '/', result['said'])
            held = f'{result["held"]} of {result["of"]}'
            print(f'| {part} | {held} | {said} | {result["seconds"]} | {result["commit"]} |')


def faults():
    """rows of lab.sh on stdin: have all runs held, 20 of each fault?"""
    counts = {'held': {}, 'runs': {}}
    for row in map(json.loads, sys.stdin):
        if row['label'] in counts:
            counts[row['label']][row['where']] = row['values'][0]
    held, runs = (sum(counts[label].values()) for label in ('held', 'runs'))
    print(f'{held} of {runs} runs of {len(counts["runs"])} faults held')
    return held == runs and runs > 0


if sys.argv[1:2] == ['run']:
    sys.exit(0 if run(sys.argv[2:]) else 1)
elif sys.argv[1:] == ['table']:
    table()
elif sys.argv[1:] == ['faults']:
    sys.exit(0 if faults() else 1)
elif sys.argv[1:] == ['list']:
    for part, commands in PARTS.items():
        print(part, *commands, sep='\n    ')
else:
    sys.exit(__doc__)
