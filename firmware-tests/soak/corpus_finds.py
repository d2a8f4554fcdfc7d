#!/usr/bin/env python3
"""Does the corpus find faults sooner than random jobs do? Shown by one-token changes of what the simulator reaches.

corpus_finds.py COUNT SEED: each mutant (support/mutate.py) meets the corpus once, and as many and ten times as many
random jobs. Counts are of jobs, not of time. Works on a copy of the tree in $BUILD.
"""
import os, random, re, signal, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../support")
import mutate

FOLDERS = "lib/core lib/elastic lib/membership lib/sparse lib/optimizer ops/coll".split()
TIMES = 10


class OutOfTime(Exception):
    """The limit of processor time ended a run: nothing is known of its mutant"""


def jobs_until(*arguments):
    """Jobs until one failed; None if none did"""
    done = subprocess.run([mutate.TREE + "/b/firmware-tests/soak_main", "600", *arguments], cwd=mutate.TREE, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          preexec_fn=mutate.limits(120))
    if done.returncode == 0:
        return None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise OutOfTime
    said = re.search(r"after (\d+) jobs", done.stdout)
    return int(said.group(1)) + 1 if said else 1  # a crash says nothing: it counts as found by the first


def main():
    corpus = sum(not line.startswith("#") for line in open("firmware-tests/soak/corpus"))
    mutate.tree_make()
    mutate.make("b", "-O1", "b/firmware-tests/soak_main")
    paths = mutate.paths_of(*FOLDERS)
    every = [(path,) + site for path in paths for site in mutate.sites(mutate.TREE + "/" + path)]
    random.Random(mutate.SEED).shuffle(every)
    tried = found_corpus = found_once = found_times = 0
    for path, offset, old, new in every:
        with mutate.mutant(path, offset, old, new) as is_one:
            if not is_one:
                continue
            try:
                by_corpus = jobs_until("corpus")
                by_random = jobs_until(str((tried + 1) * 1000000), str(TIMES * corpus))
            except OutOfTime:
                print(path, offset, old, "->", new, "out of time", flush=True)
                continue
        tried += 1
        found_corpus += by_corpus is not None
        found_once += by_random is not None and by_random <= corpus
        found_times += by_random is not None
        print(path, offset, old, "->", new, by_corpus, by_random, flush=True)
        if tried == mutate.COUNT:
            break
    print("%d mutants; found by the %d jobs of the corpus: %d, by %d random jobs: %d, by %d random jobs: %d" %
          (tried, corpus, found_corpus, corpus, found_once, TIMES * corpus, found_times))


main()
