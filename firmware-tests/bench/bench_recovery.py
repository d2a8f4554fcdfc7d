#!/usr/bin/env python3
# From kill -9 of a rank until each survivor of `gf-run --elastic gf-train --elastic` trains again, seen from outside.
#     bench_recovery.py BUILD RANKS KILLS node|tcp [RATE]     e.g. build 8 10 node
# Each kill is a job of its own, of rank 0, 1, .. in turn. Prints "min / median / max" in seconds, and the median of
# what the slowest survivor says itself. Needs a quiet machine.
# With RATE each kill is three jobs, one after the other: quiet; while RATE strangers a second come to the ranks' ports
# (program_strangers); while as many come to a process beside the job. Prints the medians of their ratios too, and exits
# with 1 where a kill left out a live rank or the flooded median is more than twice the quiet one.
# IDLE: link.idle. ROWS=FILE: the seconds of each kill are appended to it for report.py.
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

OPEN_S, RECOVER_S, JOB = 20, 10, 4711
FACTOR_MAX = 2.0
SHELL = 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"'


def wait_for(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def flood_begin(kind, build, ranks, rate, scratch):
    if kind == 'quiet':
        return None
    pids = [open(f'{scratch}/pid.{rank}').read().strip() for rank in range(ranks)] if kind == 'flooded' else []
    flood = [build + '/firmware-tests/program_strangers', 'flood', str(rate), '60', str(JOB), str(ranks)]
    return subprocess.Popen(flood + pids, stdout=subprocess.DEVNULL)


def kill_once(build, ranks, victim, way, scratch, kind='quiet', rate=0):
    """(seconds outside, seconds inside), or None where the survivors did not go on."""
    keyed = ['--set', f'rendezvous.key_file={scratch}/key', '--set', f'job.id={JOB}'] if rate > 0 else []
    key = ['--key-file', f'{scratch}/key', '--job', str(JOB)] if rate > 0 else []  # gf-run's coordinator has the same
    command = [build + '/gf-run', '-n', str(ranks), '--elastic', *key, 'sh', '-c', SHELL, scratch, build + '/gf-train',
               '--model', 'linear', '--batch', '840', '--elastic', '--steps', '1000000',
               '--set', f'link.private_memory={"false" if way == "node" else "true"}',
               '--set', f'link.idle={os.environ.get("IDLE", "auto")}'] + keyed
    lines = []
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                           env=dict(os.environ, LC_ALL='C', OPENBLAS_NUM_THREADS='1', GF_DEBUG='info'))

    def read():
        for line in job.stdout:
            lines.append((time.monotonic(), line.decode(errors='replace')))

    def of(text, since=0.0):
        return [line for line in list(lines) if text in line[1] and line[0] > since]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    flood = result = None
    if wait_for(OPEN_S, lambda: len(of('open over')) >= ranks):
        flood = flood_begin(kind, build, ranks, rate, scratch)
        time.sleep(0.3 + 0.3 * random.random())
        with open(f'{scratch}/pid.{victim}') as file:
            pid = int(file.read())
        killed_s = time.monotonic()
        os.kill(pid, 9)
        if wait_for(RECOVER_S, lambda: len(of('elastic: rank', killed_s)) >= ranks - 1):
            told = of('elastic: rank', killed_s)[:ranks - 1]
            inside = max(float(line.split(', after ')[1].split(' s:')[0]) for _, line in told)
            result = told[-1][0] - killed_s, inside
    if flood is not None:
        flood.kill()
        flood.wait()
    os.killpg(job.pid, 9)
    job.wait()
    reader.join(1)
    if flood is not None and flood.returncode != -9:
        sys.exit('the flood ended by itself')
    return result


def told(text, found):
    seconds = [pair[0] for pair in found if pair is not None]
    if not seconds:
        sys.exit(f'{text}: nobody went on')
    if os.environ.get('ROWS'):
        with open(os.environ['ROWS'], 'a') as rows:
            rows.write(json.dumps({'bench': 'recovery', 'where': text, 'label': 'outside', 'key': 'kill', 'unit': 's',
                                   'values': [round(value, 4) for value in seconds]}) + '\n')
    inside = statistics.median(pair[1] for pair in found if pair is not None)
    print(f'{text}: {min(seconds):.3f} / {statistics.median(seconds):.3f} / {max(seconds):.3f} s '
          f'({len(seconds)} of {len(found)} kills), inside {inside:.3f}')
    return statistics.median(seconds)


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit('usage: bench_recovery.py BUILD RANKS KILLS TRANSPORTS [RATE]')
    build, ranks, kills, way = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    rate = int(sys.argv[5]) if len(sys.argv) == 6 else 0
    kinds = ['quiet', 'flooded', 'flood beside'] if rate > 0 else ['quiet']
    random.seed(ranks)
    with tempfile.TemporaryDirectory() as scratch:
        with open(scratch + '/key', 'wb', opener=lambda path, flags: os.open(path, flags, 0o600)) as key:
            key.write(os.urandom(32))
        found = [[kill_once(build, ranks, kill % ranks, way, scratch, kind, rate) for kind in kinds]
                 for kill in range(kills)]
    of = {kind: told(f'{ranks} ranks over {way}, {kind}', [kill[k] for kill in found])
          for k, kind in enumerate(kinds)}
    for k, kind in enumerate(kinds[1:], 1):
        ratios = [kill[k][0] / kill[0][0] for kill in found if kill[0] and kill[k]]
        print(f'{kind}: {of[kind] / of["quiet"]:.2f} times the quiet median; '
              f'median of the pairs {statistics.median(ratios):.2f}')
    left_out = sum(pair is None for kill in found for pair in kill)
    print(f'kills after which a live rank was left out: {left_out}')
    if left_out > 0 or of.get('flooded', 0) > FACTOR_MAX * of['quiet']:
        sys.exit(1)


main()
