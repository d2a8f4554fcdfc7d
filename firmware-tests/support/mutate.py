#!/usr/bin/env python3
"""Share of seeded one-token changes of lib/ and ops/ that the quick suites notice.

mutate.py COUNT SEED: works on a copy of the tree in $BUILD, never on the tree. The library is one shared object there, so
that a mutant costs one compilation and no link of a suite. A mutant meets only the suites that execute its line (gcov),
the quickest first, and is killed by the first that fails, crashes or takes five times as long. One that does not compile or
gives the same object is replaced by the next. Prints a line a mutant and a summary; goes on where it was stopped.
"""
import collections, contextlib, glob, json, os, random, re, resource, shutil, subprocess, sys, time

COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
TREE = os.path.abspath(os.environ.get("BUILD", "build-mutate")) + "/tree"
FOLDERS = "lib config drivers ops tools firmware-tests Makefile".split()
TOKEN = re.compile(r"""(?P<skip>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
                     |(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?[uUlLfF]*)
                     |(?P<word>[A-Za-z_]\w*)|(?P<op>\+\+|--|->|<<=|>>=|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||[-+*/%&|<>!])
                     |(?P<other>[^\s])""", re.S | re.M | re.X)
SWAP = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*",
        "%": "*", "&&": "||", "||": "&&", "++": "--", "--": "++", "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<",
        "&": "|", "|": "&", "|=": "&=", "&=": "|=", "true": "false", "false": "true", "!": "",
        "GF_OK": "GF_AGAIN", "GF_AGAIN": "GF_OK"}
BINARY_ONLY = set("+-*&")  # as a prefix these are signs, addresses and pointers


def sites(path):
    """(offset, old, new) of each token that can be changed"""
    text, before = open(path).read(), ""
    for m in TOKEN.finditer(text):
        kind, token = m.lastgroup, m.group()
        if kind == "skip":
            continue
        if kind == "number" and re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*", token):
            digits = re.match(r"0[xX][0-9a-fA-F]+|\d+", token).group()
            yield m.start(), token, str(int(digits, 0) + 1) + token[len(digits):]
        elif token in SWAP and not (token in BINARY_ONLY and not re.match(r"[\w)\]]", before[-1:] or ";")):
            yield m.start(), token, SWAP[token]
        before = token


def make(build, flags, *targets):
    command = ["make", "-s", "-j2", "BUILD=" + build, "SHARED=1", "NVCC=", "CFLAGS=-w -fPIC " + flags] + list(targets)
    subprocess.run(command, cwd=TREE, check=True, stdout=subprocess.DEVNULL)


def limits(cpu_s):
    def set_limits():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
        os.setpgid(0, 0)
    return set_limits


def run(build, suite, cpu_s=200, **more):
    """True if the suite passes; a limit is of processor time, for the machine may be busy"""
    env = dict(os.environ, BUILD=build, CMOCKA_TEST_ABORT="0", TMPDIR=TREE + "/tmp", **more)
    child = subprocess.Popen([build + "/firmware-tests/" + suite], cwd=TREE, env=env, preexec_fn=limits(cpu_s),
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return child.wait(900 + 10 * cpu_s) == 0
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.wait()
        return False


@contextlib.contextmanager
def library_that_counts():
    """In the place of the suites' own, which a run that was stopped in between has left beside it"""
    plain, kept = TREE + "/b/libgradientflow.so", TREE + "/b/libgradientflow.so.plain"
    if not os.path.exists(kept):
        os.link(plain, kept)
    try:
        shutil.copy(TREE + "/cov/libgradientflow.so", plain + ".part")
        os.replace(plain + ".part", plain)
        yield
    finally:
        os.replace(kept, plain)


def coverage(suites):
    """{file: {line: suites that execute it}}, and each suite's processor time: the programs with a library that counts"""
    kept = TREE + "/coverage.json"
    if os.path.exists(kept):
        return json.load(open(kept))
    make("cov", "-O0 --coverage", "LDFLAGS=--coverage", "cov/libgradientflow.so")
    lines, seconds = collections.defaultdict(lambda: collections.defaultdict(list)), {}
    for suite in suites:
        begin = os.times()
        if not run("b", suite):
            sys.exit(suite + " fails before anything is changed")
        seconds[suite] = os.times().children_user - begin.children_user
        folder = TREE + "/gcov/" + suite + "/"
        with library_that_counts():
            run("b", suite, 600, GCOV_PREFIX=folder, GCOV_PREFIX_STRIP=str(TREE.count("/") + 1))
        found = glob.glob(folder + "**/*.gcda", recursive=True)
        for data in found:
            shutil.copy(TREE + "/cov/" + data[len(folder):-4] + "gcno", data[:-4] + "gcno")
        if not found:  # it has no need of the library
            continue
        out = subprocess.run(["gcov", "-t", "--json-format"] + found, cwd=TREE, check=True, capture_output=True).stdout
        for report in (r for row in out.splitlines() for r in json.loads(row)["files"]):
            for line in report["lines"]:
                if report["file"].endswith(".c"):
                    lines[report["file"]][str(line["line_number"])] += [suite] if line["count"] else []
        shutil.rmtree(folder, ignore_errors=True)
    json.dump([lines, seconds], open(kept, "w"))
    return [lines, seconds]


def suites_of(lines, path, at, every):
    """who executes the line, or that of the statement it goes on; of a table, which nobody executes, all that enter the
    file, and every suite where the file is nothing else"""
    known = lines.get(path, {})
    for line in range(at, at - 4, -1):
        if str(line) in known:
            return known[str(line)]
    return sorted(set(sum(known.values(), []))) if known else every


def tree_make():
    if os.path.exists(TREE):
        return
    os.makedirs(TREE + "/tmp")
    for name in FOLDERS:
        (shutil.copytree if os.path.isdir(name) else shutil.copy)(name, TREE + "/" + name)


def paths_of(*folders):
    return sorted(os.path.relpath(p, TREE) for top in folders for p in glob.glob(TREE + "/" + top + "/**/*.c", recursive=True))


@contextlib.contextmanager
def mutant(path, offset, old, new):
    """The library with one token changed; False where that does not compile or is the same object code"""
    source, obj = TREE + "/" + path, TREE + "/b/" + path[:-1] + "o"
    text, object_was = open(source).read(), open(obj, "rb").read()
    try:
        open(source, "w").write(text[:offset] + new + text[offset + len(old):])
        try:
            make("b", "-O1", "b/libgradientflow.so")
            changed = open(obj, "rb").read() != object_was
        except subprocess.CalledProcessError:
            changed = False
        yield changed
    finally:
        open(source, "w").write(text)
        open(obj, "wb").write(object_was)


def mutant_fate(path, offset, old, new, suites, seconds):
    """None if it is no mutant, else who killed it, or that nobody did"""
    with mutant(path, offset, old, new) as is_one:
        if not is_one:
            return None
        for suite in sorted(suites, key=lambda s: seconds[s]):
            if not run("b", suite, int(5 * seconds[suite]) + 3):
                return "killed by " + suite
        return "survived" if suites else "not reached"


def main():
    log = TREE + "/mutants-%d.log" % SEED
    tree_make()
    suites = [os.path.basename(path)[:-2] for path in sorted(glob.glob(TREE + "/firmware-tests/*/test_*.c"))
              if not re.search(r"^ \* suite: slow", open(path).read(), re.M)] + ["test_simt_ops"]
    if os.path.exists(TREE + "/b/libgradientflow.so.plain"):  # stopped while the other one counted
        os.replace(TREE + "/b/libgradientflow.so.plain", TREE + "/b/libgradientflow.so")
    make("b", "-O1", *["b/firmware-tests/" + s for s in suites])
    lines, seconds = coverage(suites)
    every = [(path,) + site for path in paths_of("lib", "ops") for site in sites(TREE + "/" + path)]
    random.Random(SEED).shuffle(every)
    done = dict(row.rstrip("\n").split("\t") for row in open(log)) if os.path.exists(log) else {}
    fates = collections.Counter()
    for path, offset, old, new in every:
        line = open(TREE + "/" + path).read().count("\n", 0, offset) + 1
        key = "%s:%d.%d %s -> %s" % (path, line, offset, old, new)
        if key not in done:
            suites = suites_of(lines, path, line, list(seconds))
            fate = mutant_fate(path, offset, old, new, suites, seconds) or "no mutant"
            open(log, "a").write("%s\t%s\n" % (key, fate))
            done[key] = fate
        if done[key] == "no mutant":
            continue
        fates[done[key].split(" by ")[0]] += 1
        print("%-70s %s" % (key, done[key]), flush=True)
        if sum(fates.values()) == COUNT:
            break
    total = sum(fates.values())
    print("%d mutants of %d sites, seed %d: %s; killed: %.1f %%" % (total, len(every), SEED,
          ", ".join("%d %s" % (fates[f], f) for f in sorted(fates)), 100.0 * fates["killed"] / total))


if __name__ == "__main__":
    main()
