#!/usr/bin/env python3
"""Does an hour of soak find what ten hours of random jobs find? By one-token changes of what the simulator reaches.

soak_finds.py COUNT SEED: each mutant (support/mutate.py) meets the soak as it is, the corpus first and then mostly
small jobs, for SECONDS of a core, and larger jobs of random seeds alone for TIMES as long. Works on a copy of the tree
in $BUILD.
"""
import os, random, signal, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../support")
import mutate

FOLDERS = "lib/core lib/control lib/sparse lib/optimizer ops/coll".split()
SECONDS, TIMES = 4, 10


def seconds_until(most, *arguments):
    """Seconds of a core until a job failed; None: not in so many"""
    before = os.times()
    done = subprocess.run([mutate.TREE + "/b/firmware-tests/soak_main", "6000", *arguments], cwd=mutate.TREE,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          preexec_fn=mutate.limits(most))
    after = os.times()
    taken = after.children_user + after.children_system - before.children_user - before.children_system
    return None if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else taken


def shown(seconds):
    return "never" if seconds is None else "%.2f" % seconds


def main():
    mutate.tree_make()
    mutate.make("b", "-O1", "b/firmware-tests/soak_main")
    paths = mutate.paths_of(*FOLDERS)
    every = [(path,) + site for path in paths for site in mutate.sites(mutate.TREE + "/" + path)]
    random.Random(mutate.SEED).shuffle(every)
    tried = soak = larger = 0
    for path, offset, old, new in every:
        with mutate.mutant(path, offset, old, new) as is_one:
            if not is_one:
                continue
            by_soak = seconds_until(SECONDS)
            by_larger = seconds_until(SECONDS * TIMES, str((tried + 1) << 32), str(1 << 40))
        tried += 1
        soak += by_soak is not None
        larger += by_larger is not None
        print(path, offset, old, "->", new, shown(by_soak), shown(by_larger), flush=True)
        if tried == mutate.COUNT:
            break
    print("%d mutants; found by %d s of soak: %d, by %d s of larger random jobs: %d" %
          (tried, SECONDS, soak, SECONDS * TIMES, larger))


main()
