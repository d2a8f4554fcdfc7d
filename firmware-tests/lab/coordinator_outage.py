#!/usr/bin/env python3
"""gf-coordinator, on a host of its own, is absent: what does an elastic job of four ranks on three hosts do?

coordinator_outage.py BUILD KIND SECONDS RUNS [SEED [regroup]]
KIND: stop (SIGSTOP, SIGCONT), kill (and started again after SECONDS), or cut (its cable is pulled).
Without `regroup` it is absent while the ranks train, five times a job. Training must go on, also after its return, in
the first generation and with all four ranks; then a rank is killed, and the others must go on.
With `regroup` a rank is killed up to 50 ms before or after the absence begins, a job each time. The three others must
all go on, or end and name the coordinator; never in two worlds.
Prints a line each time, and a last one: how many held. Ends with 1 where one did not; KEEP=DIR keeps its logs.
Hosts are network namespaces: it needs root and iproute2, else it is skipped (77).
"""
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

EXCHANGE_S, JOIN_S, HOSTS = 4, 30, (0, 0, 1, 2)
ADDRESS = '10.213.7.4:7117'  # of host 3
PREFIX = f'co{os.getpid()}'
TRAIN = '--model linear --elastic --batch 256 --steps 100000000 --lr 0.001 --checkpoint-every 5'.split()
CONFIG = f'''rendezvous = {{ address = "{ADDRESS}"; insecure = true; keepalive = "1 s"; join_timeout = "{JOIN_S} s"; }};
link = {{ devices = "eth0"; idle = "sleep"; }};
exchange = {{ timeout = "{EXCHANGE_S} s"; }};
'''


def net(command):
    return subprocess.run(['sh', '-c', f'. firmware-tests/support/net.sh; net_prefix={PREFIX} net_hosts=4; {command}'],
                          capture_output=True, text=True)


def wait_for(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Job:
    def __init__(self, build, number):
        self.build, self.id = build, number
        self.dir = tempfile.mkdtemp()
        with open(self.dir + '/cfg', 'w') as config:
            config.write(CONFIG)
        self.coordinator_start()
        self.ranks = [self.rank_start(rank) for rank in range(4)]

    def start(self, host, log, arguments, environment=None):
        with open(f'{self.dir}/{log}', 'a') as out:
            return subprocess.Popen(['ip', 'netns', 'exec', f'{PREFIX}-{host}', *arguments], stdout=out,
                                    stderr=subprocess.STDOUT, env=dict(os.environ, **(environment or {})))

    def coordinator_start(self):
        self.coordinator = self.start(3, 'coordinator', [self.build + '/gf-coordinator', '--config', self.dir + '/cfg',
                                                         '--job', str(self.id), '--world', '4'])

    def rank_start(self, rank):
        return self.start(HOSTS[rank], f'log.{rank}',
                          [self.build + '/gf-train', '--config', self.dir + '/cfg', '--checkpoint',
                           self.dir + '/saved', *TRAIN],
                          {'GF_RANK': str(rank), 'GF_WORLD': '4', 'GF_JOB': str(self.id), 'GF_ELASTIC': '1',
                           'GF_COORDINATOR': 'separate', 'OPENBLAS_NUM_THREADS': '1', 'GF_DEBUG': 'info'})

    def text(self, rank):
        with open(f'{self.dir}/log.{rank}', errors='replace') as log:
            return log.read()

    def step(self, rank):
        """that it saved last"""
        for path in (f'{self.dir}/saved.{rank}', f'{self.dir}/saved.{rank}.before'):
            try:
                with open(path, 'rb') as saved:
                    return struct.unpack('<Q', saved.read(48)[40:])[0]
            except (OSError, struct.error):
                pass
        return 0

    def moves(self, seconds, ranks=range(4)):
        first = {rank: self.step(rank) for rank in ranks}
        return wait_for(seconds, lambda: all(self.step(rank) >= first[rank] + 5 for rank in ranks))

    def living(self):
        return [rank for rank in range(4) if self.ranks[rank].poll() is None]

    def gone_on(self, ranks):
        """those that say so"""
        return [rank for rank in ranks if 'elastic: rank' in self.text(rank)]

    def generations(self):
        """their numbers, and what is wrong with them"""
        worlds, wrong = {}, ''
        for by in range(4):
            for rank, world, number in re.findall(r'rank (\d+) of (\d+): generation (\d+) has begun', self.text(by)):
                if (number, rank) in worlds:
                    wrong = f'two processes are rank {rank} of generation {number}'
                worlds[number, rank] = world
                if any(other != world for (n, _), other in worlds.items() if n == number):
                    wrong = f'generation {number} has two worlds'
        return {int(number) for number, _ in worlds}, wrong

    def absence_begin(self, kind):
        if kind == 'stop':
            self.coordinator.send_signal(signal.SIGSTOP)
        elif kind == 'kill':
            self.coordinator.kill()
            self.coordinator.wait()
        else:
            net('net_cable 3 down')

    def absence_end(self, kind):
        if kind == 'stop':
            self.coordinator.send_signal(signal.SIGCONT)
        elif kind == 'kill':
            self.coordinator_start()
        else:
            net('net_cable 3 up')

    def end(self, wrong):
        for process in [*self.ranks, self.coordinator]:
            if process.poll() is None:
                process.kill()
            process.wait()
        if wrong and os.environ.get('KEEP'):
            shutil.copytree(self.dir, f'{os.environ["KEEP"]}/{PREFIX}.{self.id}', dirs_exist_ok=True)
        shutil.rmtree(self.dir)


def say(wrong, what):
    print(f'{"not ok" if wrong else "ok"} {what}{": " + wrong if wrong else ""}', flush=True)


def while_they_train(build, kind, seconds, runs, draw):
    held = done = 0
    while done < runs:
        job = Job(build, draw.randrange(1, 1 << 40))
        wrong = '' if job.moves(60) else 'the job did not begin'
        for _ in range(min(5, runs - done)):
            if wrong:
                done += 1
                break
            time.sleep(draw.random() * 0.5)
            job.absence_begin(kind)
            began = time.monotonic()
            if not job.moves(max(seconds, 15)):
                wrong = 'no steps meanwhile'
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            away = time.monotonic() - began
            job.absence_end(kind)
            time.sleep(2.5 if seconds <= 4 else 3.5)
            if not job.moves(30):
                wrong = wrong or 'no steps after it'
            numbers, two = job.generations()
            if two or not numbers <= {1}:
                wrong = wrong or two or f'generations {sorted(numbers)}'
            if len(job.living()) < 4:
                wrong = wrong or f'only ranks {job.living()} live'
            done += 1
            held += not wrong
            say(wrong, f'{kind}, away for {away:.1f} s')
        if not wrong:
            victim = draw.randrange(4)
            others = [rank for rank in range(4) if rank != victim]
            time.sleep(3)
            job.ranks[victim].kill()
            began = time.monotonic()
            if not wait_for(60, lambda: job.gone_on(others) == others):
                wrong = 'the others do not go on'
                held -= 1
            say(wrong, f'then rank {victim} is killed; {time.monotonic() - began:.2f} s')
        job.end(wrong)
    print(f'{kind} for {seconds:g} s while ranks train: {held} of {runs} held')
    return held == runs


def in_a_regroup(build, kind, seconds, runs, draw):
    held, ways = 0, {}
    for _ in range(runs):
        job = Job(build, draw.randrange(1, 1 << 40))
        wrong, way, took = '' if job.moves(60) else 'the job did not begin', 'nothing', 0.0
        victim, is_first, gap = draw.randrange(4), draw.random() < 0.5, draw.random() * 0.05
        others = [rank for rank in range(4) if rank != victim]
        time.sleep(draw.random() * 0.5)
        if not wrong:
            acts = [lambda: job.absence_begin(kind), job.ranks[victim].kill]
            first, second = acts if is_first else acts[::-1]
            first()
            time.sleep(gap)
            second()
            began = time.monotonic()
            time.sleep(seconds)
            job.absence_end(kind)
            wait_for(JOIN_S + EXCHANGE_S + 30, lambda: job.gone_on(others) == [r for r in others if r in job.living()])
            took = time.monotonic() - began
            living = [rank for rank in others if rank in job.living()]
            on = job.gone_on(living)
            named = [rank for rank in others if re.search('error:.*coordinator', job.text(rank))]
            way = 'all go on' if living == others else 'some go on' if living else 'all end'
            wrong = job.generations()[1]
            if on != living:
                wrong = wrong or f'ranks {living} live and {on} go on'
            if living and not job.moves(60, living):
                wrong = wrong or 'no steps'
            if sorted(living + named) != others:
                wrong = wrong or f'ranks {living} live, and {named} name the coordinator'
        held += not wrong
        ways[way] = ways.get(way, 0) + 1
        say(wrong, f'{kind} for {seconds:g} s, {gap * 1e3:.0f} ms {"before" if is_first else "after"} the death of '
                   f'rank {victim}: {way} after {took:.1f} s')
        job.end(wrong)
    told = ', '.join(f'{way} {count}' for way, count in sorted(ways.items()))
    print(f'{kind} for {seconds:g} s in a regroup: {held} of {runs} held ({told})')
    return held == runs


def main(build, kind, seconds, runs, seed='1', regroup=''):
    missing = net('net_prefix=; net_missing').stdout.strip()
    if missing:
        print('skipped: ' + missing)
        return 77
    do = in_a_regroup if regroup else while_they_train
    try:
        up = net(f'net_up {PREFIX} 4 1gbit')
        if up.returncode != 0:
            sys.exit(up.stderr)
        return 0 if do(build, kind, float(seconds), int(runs), random.Random(int(seed))) else 1
    finally:
        net('net_down')


if not 5 <= len(sys.argv) <= 7 or sys.argv[2] not in ('stop', 'kill', 'cut'):
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
