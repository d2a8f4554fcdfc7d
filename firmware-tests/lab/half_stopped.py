#!/usr/bin/env python3
"""Five of eleven ranks of one node are stopped at once (SIGSTOP), with exchange.timeout 2 s.

half_stopped.py BUILD RUNS [SEED]
The other six must go on; once the five may run again all eleven must be one job again. In turns the ranks share memory
and use sockets. Prints seconds for each run, and how many held; ends with 1 where one did not.
"""
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

RANKS, STOPPED = 11, 5
SHELL = 'echo $$ >"$0/pid.$GF_RANK"; exec "$@"'
TRAIN = '--model linear --elastic --batch 220 --steps 100000000 --lr 0.001 --checkpoint-every 10'.split()


def wait_for(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def run_once(build, private, victims, pause_s, scratch):
    """seconds until the six go on, and until all are one job again; None for what did not happen"""
    lines = []
    job = subprocess.Popen([build + '/gf-run', '-n', str(RANKS), '--elastic', 'sh', '-c', SHELL, scratch,
                            build + '/gf-train', '--checkpoint', scratch + '/saved', *TRAIN,
                            '--set', 'exchange.timeout=2s', '--set', 'link.idle=sleep',
                            '--set', f'link.private_memory={private}'],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                           env=dict(os.environ, OPENBLAS_NUM_THREADS='1', LC_ALL='C'))

    def read():
        for line in job.stdout:
            lines.append((time.monotonic(), line.decode(errors='replace')))

    def of(text, since):
        return [at for at, line in list(lines) if text in line and at > since]

    threading.Thread(target=read, daemon=True).start()
    on_s = back_s = None
    pids = []
    if wait_for(60, lambda: os.path.exists(scratch + '/saved.0')):
        time.sleep(pause_s)
        for rank in range(RANKS):
            with open(f'{scratch}/pid.{rank}') as file:
                pids.append(int(file.read()))
        for rank in victims:
            os.kill(pids[rank], signal.SIGSTOP)
        began = time.monotonic()
        if wait_for(60, lambda: len(of('elastic: rank', began)) >= RANKS - STOPPED):
            on_s = of('elastic: rank', began)[RANKS - STOPPED - 1] - began
        began = time.monotonic()
        for rank in victims:
            os.kill(pids[rank], signal.SIGCONT)
        if wait_for(60, lambda: len(of(f'of {RANKS} from step', began)) > 0):
            back_s = of(f'of {RANKS} from step', began)[0] - began
    job.terminate()
    try:
        job.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        job.wait()
    return on_s, back_s


def main(build, runs, seed='1'):
    draw = random.Random(int(seed))
    times = []
    for run in range(int(runs)):
        private = 'true' if run % 2 else 'false'
        victims = sorted(draw.sample(range(RANKS), STOPPED))
        with tempfile.TemporaryDirectory() as scratch:
            on_s, back_s = run_once(build, private, victims, 0.5 + draw.random(), scratch)
        times += [on_s] if on_s and back_s else []
        print(f'{"ok" if on_s and back_s else "not ok"} link.private_memory={private}, ranks {victims} stopped: the '
              f'others go on after {on_s and round(on_s, 2)} s; all again {back_s and round(back_s, 2)} s after '
              'the stop', flush=True)
    if times:
        print(f'until the six go on: min / median / max {min(times):.2f} / {statistics.median(times):.2f} / '
              f'{max(times):.2f} s')
    print(f'{STOPPED} of {RANKS} ranks stopped: {len(times)} of {runs} held')
    return 0 if len(times) == int(runs) else 1


if not 3 <= len(sys.argv) <= 4:
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
