#!/usr/bin/env python3
# From kill -9 of a rank until each survivor of `gf-run --elastic gf-train --elastic` trains again, seen from outside.
#     bench_recovery.py BUILD RANKS KILLS TRANSPORTS      e.g. build 8 10 self,posix
# Each kill is a job of its own, of rank 0, 1, .. in turn. Prints "min / median / max" in seconds, and the median of
# what the slowest survivor says itself. Needs a quiet machine.
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

OPEN_S, RECOVER_S = 20, 10
SHELL = 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"'


def wait_for(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def kill_once(build, ranks, victim, transports, scratch):
    """(seconds outside, seconds inside), or None where the survivors did not go on."""
    command = [build + '/gf-run', '-n', str(ranks), '--elastic', 'sh', '-c', SHELL, scratch, build + '/gf-train',
               '--model', 'linear', '--batch', '840', '--elastic', '--steps', '1000000',
               '--set', 'link.transports=' + transports]
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
    result = None
    if wait_for(OPEN_S, lambda: len(of('open over')) >= ranks):
        time.sleep(0.3 + 0.3 * random.random())
        with open(f'{scratch}/pid.{victim}') as file:
            pid = int(file.read())
        killed_s = time.monotonic()
        os.kill(pid, 9)
        if wait_for(RECOVER_S, lambda: len(of('elastic: rank', killed_s)) >= ranks - 1):
            told = of('elastic: rank', killed_s)[:ranks - 1]
            inside = max(float(line.split(', after ')[1].split(' s:')[0]) for _, line in told)
            result = told[-1][0] - killed_s, inside
    os.killpg(job.pid, 9)
    job.wait()
    reader.join(1)
    return result


def main():
    if len(sys.argv) != 5:
        sys.exit('usage: bench_recovery.py BUILD RANKS KILLS TRANSPORTS')
    build, ranks, kills, transports = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    random.seed(ranks)
    with tempfile.TemporaryDirectory() as scratch:
        found = [kill_once(build, ranks, kill % ranks, transports, scratch) for kill in range(kills)]
    seconds = [pair[0] for pair in found if pair is not None]
    if not seconds:
        sys.exit(f'{ranks} ranks over {transports}: nobody went on')
    inside = statistics.median(pair[1] for pair in found if pair is not None)
    print(f'{ranks} ranks over {transports}: {min(seconds):.3f} / {statistics.median(seconds):.3f} / '
          f'{max(seconds):.3f} s ({len(seconds)} of {kills} kills), inside {inside:.3f}')


main()
