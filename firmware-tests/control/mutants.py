#!/usr/bin/env python3
"""Changes of lib/control/ that the search of states.h, or a suite, must find.

mutants.py planted [NAME]: defects against the rules of lib/control/README.md, each of which must be found, by the
suites in one thread, by the search of make check, or else by that of make check-states
mutants.py COUNT SEED [MINUTES [search]]: seeded changes of a token and deleted statements: the share that is found by
the suites that run in one thread (WORLD), by the search of make check (test_states: so many transitions, whatever the
machine), and by the suites over the simulated network (SUITES), in this order, each up to the first failure; `search`:
by the search alone. JOBS=2 are tried at once. A row each is added to $BUILD/states/mutants-SEED-SOURCES.tsv: what, by
whom it was found, seconds of the processor; SOURCES stands for what is in the files now. Mutants that have a row are
not tried again, so a run may be ended, and goes on where it was; after MINUTES it ends by itself. In the end all that
nothing found are told once more.
mutants.py again SEED: those of that table that nothing found are tried once more, with the same lib/control.
mutants.py draw COUNT SEED: what would be tried, and what is left out.
Each is one object, linked in front of the library into a program of its own in $BUILD/states. A mutant that gives the
same object, does not compile, or is no defect (is_no_defect()) is replaced by the next. Ends with 1 where a planted
defect is not found. In the suites of one thread it has the compiler's checks of addresses, bounds and shifts, as they
have in check-long.
"""
import glob, hashlib, multiprocessing, os, random, re, resource, shutil, signal, subprocess, sys, time

BUILD = os.environ.get("BUILD", "build")
OUT = "%s/states/%d" % (BUILD, os.getpid())  # a folder of this run's own
CC = os.environ.get("CC", "gcc").split()
FLAGS = "-std=c11 -D_GNU_SOURCE -w -O1 -g0 -ffunction-sections -fno-strict-aliasing".split()
FLAGS += "-I. -Ilib -Idrivers/base -Iconfig".split()
SANITIZE = "-fsanitize=address,bounds,null,shift -fsanitize-undefined-trap-on-error".split()
os.environ["ASAN_OPTIONS"] = "detect_leaks=0"


def object_of(source):
    return "%s/%s.o" % (BUILD, source[:-2])


# the face that lib/core sees is of the suites of lib/core, as is what a process without a coordinator does
FILES = [f for f in sorted(glob.glob("lib/control/*.c")) if os.path.basename(f) not in ("control.c", "alone.c")]
SEARCH = [object_of(f) for f in ["firmware-tests/control/program_states.c"] +
          sorted(glob.glob("firmware-tests/control/states*.c"))]
MAIN = BUILD + "/firmware-tests/support/suite_main.o"
CHECK = [BUILD + "/firmware-tests/control/test_states.o", MAIN] + SEARCH[1:]
LIBS = [BUILD + "/libgradientflow.a", "-lconfig", "-lsodium", "-ldl", "-lrt", "-lm", "-pthread"]
TEST_LIBS = [BUILD + "/libtest.a", BUILD + "/libgradientflow_sim.a"]
WORLD = sorted((f for f in glob.glob("firmware-tests/control/test_*.c")
                if re.search(r'"firmware-tests/support/control_(suite|w)', open(f).read())),
               key=lambda f: ("words" not in f, "walks" in f, f))  # the quickest to find something first
SUITES = [f for n in ("leave join_death regroup_commit failure suspended rejoin control_many coordinator regroup "
                      "edges").split()
          for f in glob.glob("firmware-tests/*/test_%s.c" % n)]
SUITES.insert(-1, "firmware-tests/soak/test_soak.c")
PLANTED = {  # a defect, after the number of its rule in the contract: its file once, and what stands for what
    "1: a job is begun anew beside a process that is of a generation":
        ["first_join", ("        if ((row->waits || is_away) && (row->offer.standing.generation != 0))"
                        " return false;\n",
                        "        (void)is_away;\n")],
    "2: a connection that broke is an end of its process":
        ["coordinator_take", ("(event->end == GF_CHANNEL_BROKE) ? CONTROL_PROCESS_LIVES",
                              "(event->end == GF_CHANNEL_BROKE) ? CONTROL_PROCESS_ENDED")],
    "3: a list without whole weights":
        ["list", ("if (row->progress.partial == 0) return HOLDS_WEIGHTS;", "return HOLDS_WEIGHTS;")],
    "3: an old list is told":
        ["list", ("c->rows[id].pending &= ~(1u << CONTROL_LIST);", ";")],
    "3: a list names ids and not processes":
        ["coordinator_offer", ("row->listed = 0; /* another process was on the list */", ";")],
    "4: who was cut comes in again":
        ["coordinator_send", ("bool banned = (row->banned == row->process);", "bool banned = false;")],
    "5: two processes of an id":
        ["coordinator_offer", ("if (!lives || offer->rejoins || !fresh) return true;", "return true;")],
    "6: the clock of a coordinator goes on while it is not polled":
        ["coordinator", ("(gap_ns < CONTROL_NAP_NS) ? gap_ns : CONTROL_NAP_NS", "gap_ns")],
    "6: silence counts while nobody is connected":
        ["member", ("waits && member->connected && (member->now_ns", "waits && (member->now_ns")],
    "7: a generation is taken over with some of its members":
        ["takeover", ("return (here == of->world) && (list == of->list_hash);", "return here > 0;")],
    "7: a number is given twice":
        ["coordinator_offer", ("if (offer.standing.listed > c->used) c->used = offer.standing.listed;", ";")],
    "8: the host of the coordinator is cut":
        ["edges", ("(row->edges == 0) || !control_may_be_cut(c, c->rank_ids[a])", "row->edges == 0"),
         ("if (host_has > most) {", "if (false) {")],
    "9: a rank that died is awaited at the end":
        ["finding", ("if (control_is_awaited(row)) return false;",
                     "if (row->member && (row->said != CONTROL_SAID_BYE)) return false;")],
}
TOKEN = re.compile(r"""(?P<skip>/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^\s*\#(?:[^\n]*\\\n)*[^\n]*)
                     |(?P<number>\b\d+u?\b)|(?P<word>[A-Za-z_]\w*)
                     |(?P<op>\+\+|--|->|[-+*/%&|^<>=!]=|&&|\|\||<<|>>|[-+*/%&|<>!])
                     |(?P<other>\S)""", re.S | re.M | re.X)
SWAP = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "&&": "||", "||": "&&",
        "true": "false", "false": "true", "!": "", "++": "--", "+=": "-=", "|=": "&=", "&=": "|="}


def sites(text):
    """(offset, old, new) of each change: a token, a condition negated, a statement deleted"""
    for m in TOKEN.finditer(text):
        token, before = m.group(), text[:m.start()].rstrip()[-1:]
        if m.lastgroup == "number":
            yield m.start(), token, str(int(token.rstrip("u")) + 1) + ("u" if token.endswith("u") else "")
        elif token in SWAP and (token not in "+-" or re.match(r"[\w)\]]", before)):
            yield m.start(), token, SWAP[token]
    for m in re.finditer(r"\bif \((.*)\)( \{)?$|\bif \((.*)\) (?=return|continue)", text, re.M):
        condition = m.group(1) or m.group(3)
        if condition.count("(") == condition.count(")"):
            yield m.start(), "if (" + condition + ")", "if (!(" + condition + "))"
    for m in re.finditer(r"^ +((?!return|break|else|case|for|if|while|const|static|struct|bool|uint|\(void\))"
                         r"[a-z][^;{}\n]*;)$", text, re.M):
        yield m.start(1), m.group(1), ";"


def around(text, at, size):
    """what stands to the left and to the right of it, up to the next && || ? : , ; = or the end of a condition"""
    left = re.split(r"&&|\|\||[?:;{}]|(?<![<>=!])=(?!=)", text[max(0, at - 200):at])[-1]
    return left, re.split(r"&&|\|\||[?:;{}]", text[at + size:at + 200])[0]


def is_no_defect(text, at, old, new):
    """why nobody could see it, whatever he does; None: somebody could. Few rules, and narrow ones: what changes a text,
    a line of a log, or a time by more than a nanosecond stays in."""
    left, right = around(text, at, len(old))
    line = text[text.rfind("\n", 0, at) + 1:text.find("\n", at)]
    time = r"\b\w*(_ns|_NS)\b"
    if re.match(r"[<>]=?$", old) and re.search(time, left) and re.search(time, right):
        return "two times that are equal to the nanosecond: no rule says which of the two goes first"
    if (re.match(r"\d{6,}$", old) and re.search(time, line)) or (old == "0" and re.search(time + r" (>|<=) $", left)):
        return "a time by one nanosecond"
    if re.search(r"\bGF_ASSERT\(", line) and not new.startswith("if"):
        return "an assertion, which tells of another defect and does nothing where there is none"
    given = re.match(r" +struct control_\w+ (\w+) = \{0\};", line)
    if given and old == "0" and re.search(r"_walk\([^;]*&%s\);" % given.group(1), text[at:at + 250]):
        return "the first field of what a frame's walk reads a moment later"
    if re.match(r" +char \w+\[\d+\]", line) and old.isdigit() and text[at - 1] == "[":
        return "a buffer for a text has a byte more"
    return None


def build(path, text):
    """the object, or None: it does not compile, or is that of the source"""
    source, object_, plain = OUT + "/mutant.c", OUT + "/mutant.o", OUT + "/plain-%s.o" % os.path.basename(path)
    for content, out in ((open(path).read(), plain), (text, object_)):
        if out == plain and os.path.exists(plain):
            continue
        open(source, "w").write("#line 1 \"%s\"\n" % path + content)
        if subprocess.run(CC + FLAGS + ["-c", source, "-o", out], stderr=subprocess.DEVNULL).returncode != 0:
            return None
    if open(object_, "rb").read() == open(plain, "rb").read():
        return None
    subprocess.run(CC + FLAGS + SANITIZE + ["-c", source, "-o", OUT + "/mutant-san.o"], check=True)
    return object_


def link(objects, *libs, sanitize=()):
    program = OUT + "/mutant"
    mutant = OUT + ("/mutant-san.o" if sanitize else "/mutant.o")
    subprocess.run(CC + ["-o", program, *sanitize] + objects + [mutant, *libs] + LIBS +
                   ["-lcmocka", "-Wl,--gc-sections"], check=True)
    return program


def limited(seconds):
    """of the processor: on a busy machine the clock says nothing"""
    return lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))


def found(program, seconds, said, *arguments):
    """the first line in which the search says this, or how it ends; None: it says nothing of the mutant"""
    with subprocess.Popen(["nice", "-n", "10", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", preexec_fn=limited(seconds)) as run:
        for line in run.stdout:
            if said in line:
                run.kill()
                return line.strip()
        code = run.wait()
    if code == -signal.SIGXCPU:
        return "it does not end"
    return None if code == 0 else "it ends with %d" % code


def spent_s():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def suite_found(source, seconds=40, sanitize=()):
    """how this suite fails with the mutant that was built last; None: it does not"""
    text = open(source).read()
    wraps = re.findall(r"^ \* link: wrap ([a-z0-9_ ]*[a-z0-9_])", text, re.M)
    objects = [object_of(source), MAIN]
    said = found(link(objects, *("-Wl,--wrap=" + wrap for wrap in " ".join(wraps).split()), *TEST_LIBS,
                      sanitize=sanitize), seconds, "ERROR ")
    return None if said is None else "%s: %s" % (os.path.basename(source)[:-2], said)


def world_found():
    return next(filter(None, (suite_found(source, 20, SANITIZE) for source in WORLD)), None)


def suites_found(path):
    """.. and the other ones; test_edges, which takes longest, for what decides whose fault it is"""
    is_fault = re.search("edges|inquiry|rounds|finding", os.path.basename(path))
    return next(filter(None, map(suite_found, SUITES if is_fault else SUITES[:-1])), None)


def planted(only):
    missed = 0
    for name, (file, *changes) in PLANTED.items():
        if only not in name:
            continue
        texts = {path: open(path).read() for path in FILES}
        path = next((p for p in FILES if changes[0][0] in texts[p]), file)
        text = texts.get(path, "")
        for old, new in changes:
            assert text.count(old) >= 1, name + ": " + path + " has changed"
            text = text.replace(old, new)
        assert build(path, text) is not None, name + ": it is none"
        said = (found(link(CHECK), 20, "ERROR: ") or world_found() or
                found(link(SEARCH), 200, "does not hold", "120"))
        missed += said is None
        print("%s planted: %s: %s" % ("ok" if said else "not ok", name, said or "it was not found"), flush=True)
    return missed


def tried(path, at, old, new, with_suites):
    """the row of a mutant, or None where it is none"""
    text = open(path).read()
    if is_no_defect(text, at, old, new) or build(path, text[:at] + new + text[at + len(old):]) is None:
        return None
    began_s = spent_s()
    by = world_found() if with_suites else None
    kind = "world"
    if by is None:
        by, kind = found(link(CHECK), 20, "ERROR: "), "search"
    if by is None and with_suites:
        by, kind = suites_found(path), "suites"
    change = "%s -> %s" % (" ".join(old.split()), new or "nothing")
    return ["MISSED" if by is None else kind, "%s:%d" % (path, text.count("\n", 0, at) + 1), change,
            " ".join((by or "").split()), "%.1f" % (spent_s() - began_s)]


def drawing(seed):
    every = [(path, *site) for path in FILES for site in sites(open(path).read())]
    random.Random(seed).shuffle(every)
    return [("%d %s %d" % (number, path, at), path, at, old, new)
            for number, (path, at, old, new) in enumerate(every)]


def table_of(seed):
    """where the rows are: of these files as they are now, since a mutant is known by its place in them"""
    sources = hashlib.sha256("".join(open(path).read() for path in FILES).encode()).hexdigest()[:8]
    return "%s/states/mutants-%d-%s.tsv" % (BUILD, seed, sources)


def worker_begin():
    global OUT
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    OUT = "%s/%d" % (OUT, os.getpid())
    os.makedirs(OUT)


def worker_try(task):
    key, path, at, old, new, with_suites = task
    return [key] + (tried(path, at, old, new, with_suites) or ["none"])


def drawn(count, seed, minutes, with_suites):
    every = drawing(seed)
    until = time.monotonic() + 60 * minutes
    table = table_of(seed)
    rows = [line.rstrip("\n").split("\t") for line in open(table)] if os.path.exists(table) else []
    known = {row[0] for row in rows}
    tasks = [(*site, with_suites) for site in every if site[0] not in known]
    with open(table, "a") as out, multiprocessing.Pool(int(os.environ.get("JOBS", "2")), worker_begin) as pool:
        results = pool.imap(worker_try, tasks)  # in order: the first `count` of the draw, however many are at work
        while sum(row[1] != "none" for row in rows) < count and time.monotonic() < until and len(rows) < len(every):
            rows.append(next(results))
            print(*rows[-1], sep="\t", file=out, flush=True)
            if rows[-1][1] != "none":
                print(*rows[-1][1:], sep="  ", flush=True)
        pool.terminate()
    tell([row[1:] for row in rows if row[1] != "none"], "of %d that there are" % len(every))


def draw_tell(count, seed):
    for _, path, at, old, new in drawing(seed)[:count]:
        text = open(path).read()
        print("%s:%d  %s -> %s  %s" % (path, text.count("\n", 0, at) + 1, " ".join(old.split()), new or "nothing",
                                       is_no_defect(text, at, old, new) or ""))


def tell(rows, of):
    by = {kind: sum(row[0] == kind for row in rows) for kind in ("world", "search", "suites")}
    for row in rows:
        if row[0] == "MISSED":
            print("nothing found %s  %s" % (row[1], row[2]))
    print("%d of %d found (%s): %d by suites in one thread, %d more by the search, %d more by the other suites; %.0f s "
          "of the processor" % (sum(by.values()), len(rows), of, by["world"], by["search"], by["suites"],
                                sum(float(row[4]) for row in rows)))


def again(seed):
    missed = {line.split("\t")[0] for line in open(table_of(seed)) if "\tMISSED\t" in line}
    tasks = [(*site, True) for site in drawing(seed) if site[0] in missed]
    rows = []
    with multiprocessing.Pool(int(os.environ.get("JOBS", "2")), worker_begin) as pool:
        for row in pool.imap(worker_try, tasks):
            print(*row[1:], sep="  ", flush=True)
            rows += [row[1:]] if row[1] != "none" else []
    tell(rows, "of those that nothing had found")


def main(arguments):
    if arguments[0] == "again":
        again(int(arguments[1]))
        return 0
    if arguments[0] == "draw":
        draw_tell(int(arguments[1]), int(arguments[2]))
        return 0
    if arguments[0] == "planted":
        return planted(arguments[1] if len(arguments) > 1 else "") > 0
    minutes = float(arguments[2]) if len(arguments) > 2 else 600
    drawn(int(arguments[0]), int(arguments[1]), minutes, "search" not in arguments)
    return 0


os.makedirs(OUT)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with its workers
try:
    sys.exit(main(sys.argv[1:]))
finally:
    shutil.rmtree(OUT)
