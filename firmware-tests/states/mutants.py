#!/usr/bin/env python3
"""Changes of lib/elastic/ that the search of states.h must find.

mutants.py planted [SECONDS [NAME]]: nine defects that the rule of lib/DESIGN.md forbids, each of which must be found,
by the search of make check or else by that of make check-states
mutants.py COUNT SEED [MINUTES [search]]: seeded changes of a token and deleted statements: the share that is found by
the search of make check (test_states: so many transitions, whatever the machine), and by it or a suite of the view
change; `search`: no suites. A row each is added to $BUILD/states/mutants-SEED.tsv: what, by whom it was found, seconds
of the processor for the search and for all. Mutants that have a row are not tried again, so a run may be ended, and
goes on where it was; after MINUTES it ends by itself.
Each is one object, linked in front of the library into a program of its own in $BUILD/states. A mutant that gives the
same object, or does not compile, is replaced by the next. Ends with 1 where a planted defect is not found.
"""
import os, random, re, resource, shutil, signal, subprocess, sys, time

BUILD = os.environ.get("BUILD", "build")
OUT = "%s/states/%d" % (BUILD, os.getpid())  # a folder of this run's own
CC = os.environ.get("CC", "gcc").split()
FLAGS = "-std=c11 -D_GNU_SOURCE -w -O1 -g0 -ffunction-sections -fno-strict-aliasing -I. -Ilib -Iconfig".split()
SEARCH = [BUILD + "/firmware-tests/states/%s.o" % n
          for n in "program_states states_driver states_world states_rules states_search".split()]
FILES = ["lib/elastic/%s.c" % n
         for n in "quorum view view_agree view_begin view_frames view_lead view_take recovering".split()]
CHECK = [BUILD + "/firmware-tests/%s.o" % n for n in ("states/test_states", "support/suite_main")] + SEARCH[1:]
LIBS = [BUILD + "/libgradientflow.a", "-lconfig", "-lsodium", "-ldl", "-lrt", "-lm", "-pthread"]
# Those that run the view change, the quickest first.
SUITES = ("view_growth members_frames members_link members members_fail leave view_schedules join_death epoch "
          "shrink_commit rejoin suspended edges shrink views failure").split()
PLANTED = {  # a defect: its file, and what stands in the place of what
    "the old waits rule":
        ["quorum", ("waits && (all_answer || (member->view == members->view.view));", "waits; (void)all_answer;")],
    "a list newer than the answers":
        ["quorum", ("&members->view.led, false)", "&members->view.noted, false)")],
    "a forgotten proposal":
        ["view_agree", ("if ((view->accepted_view == 0) && !proposal_make", "if (!proposal_make")],
    "no promise check":
        ["view_take", ("(epoch != view->epoch.epoch) || (number < view->view)", "epoch != view->epoch.epoch"),
         ("if (number != members->view.view) number = 0;", "")],
    "the lowest proposal":
        ["view_take", ("(number <= view->accepted_view)",
                       "(number == 0) || ((view->accepted_view != 0) && (number >= view->accepted_view))")],
    "half is enough":
        ["quorum", ("(2 * count > of)", "(2 * count >= of)")],
    "reports of lower views counted":
        ["view_agree", ("member->answered && (member->view == view->view) && ", "")],
    "any incarnation is mine":
        ["quorum", ("return took == members->incarnation;", "return true;")],
    "an id's other process after a commit shut it out":
        ["quorum", ("!gf_view_joins(members) && (list->epoch == members->view.epoch.epoch + 1);",
                    "!gf_view_joins(members);")],
}
TOKEN = re.compile(r"""(?P<skip>/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^\s*\#[^\n]*)
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


def build(path, text):
    """the object, or None: it does not compile, or is that of the source"""
    source, object_, plain = OUT + "/mutant.c", OUT + "/mutant.o", OUT + "/plain.o"
    for content, out in ((text, object_), (open(path).read(), plain)):
        open(source, "w").write("#line 1 \"%s\"\n" % path + content)
        if subprocess.run(CC + FLAGS + ["-c", source, "-o", out], stderr=subprocess.DEVNULL).returncode != 0:
            return None
    if open(object_, "rb").read() == open(plain, "rb").read():
        return None
    return object_


def link(objects, *libs):
    program = OUT + "/mutant"
    subprocess.run(CC + ["-o", program] + objects + [OUT + "/mutant.o", *libs] + LIBS +
                   ["-lcmocka", "-Wl,--gc-sections"], check=True)
    return program


def limited(seconds):
    """of the processor: on a busy machine the clock says nothing"""
    return lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))


def found(program, seconds, said, *arguments):
    """the line in which the search says this, or how it ends; None: it says nothing of the mutant"""
    done = subprocess.run(["nice", "-n", "10", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", preexec_fn=limited(seconds))
    if done.returncode == -signal.SIGXCPU:
        return "it does not end"
    lines = [row for row in done.stdout.splitlines() if said in row]
    if done.returncode == 0:
        return None
    return lines[0].strip() if lines else "it ends with %d" % done.returncode


def spent_s():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def suite_found():
    """the first suite that fails with the mutant that was built last; None: none does"""
    for name in SUITES:
        program = link(["%s/firmware-tests/%s.o" % (BUILD, n) for n in ("sim/test_" + name, "support/suite_main")],
                       BUILD + "/libtest.a", BUILD + "/libgradientflow_sim.a")
        done = subprocess.run(["nice", "-n", "10", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              preexec_fn=limited(100))
        if done.returncode != 0:
            return "test_" + name
    return None


def planted(seconds, only):
    missed = 0
    for name, (file, *changes) in PLANTED.items():
        path = "lib/elastic/%s.c" % file
        text = open(path).read()
        for old, new in changes:
            assert text.count(old) == 1, name + ": " + path + " has changed"
            text = text.replace(old, new)
        if only not in name:
            continue
        build(path, text)
        said = (found(link(CHECK), 100, "ERROR: ") or
                found(link(SEARCH), 10 * seconds + 20, "does not hold", str(seconds)))
        missed += said is None
        print("%s planted: %s: %s" % ("ok" if said else "not ok", name, said or "it was not found"), flush=True)
    return missed


def tried(path, at, old, new, with_suites):
    """the row of a mutant, or None where it is none"""
    text = open(path).read()
    if build(path, text[:at] + new + text[at + len(old):]) is None:
        return None
    began_s = spent_s()
    by = found(link(CHECK), 100, "ERROR: ")
    search_s = spent_s() - began_s
    if by is None and with_suites:
        by = suite_found()
    kind = "MISSED" if by is None else "suite" if by.startswith("test_") else "found"
    change = "%s -> %s" % (" ".join(old.split()), new or "nothing")
    return [kind, "%s:%d" % (path, text.count("\n", 0, at) + 1), change, by or "", "%.1f" % search_s,
            "%.1f" % (spent_s() - began_s)]


def drawn(count, seed, minutes, with_suites):
    every = [(path, *site) for path in FILES for site in sites(open(path).read())]
    random.Random(seed).shuffle(every)
    until = time.monotonic() + 60 * minutes
    table = "%s/states/mutants-%d.tsv" % (BUILD, seed)
    rows = [line.rstrip("\n").split("\t") for line in open(table)] if os.path.exists(table) else []
    known = {row[0] for row in rows}
    with open(table, "a") as out:
        for number, (path, at, old, new) in enumerate(every):
            key = "%d %s %d" % (number, path, at)
            if sum(row[1] != "none" for row in rows) >= count or time.monotonic() > until:
                break
            if key in known:
                continue
            rows.append([key] + (tried(path, at, old, new, with_suites) or ["none"]))
            print(*rows[-1], sep="\t", file=out, flush=True)
            if rows[-1][1] != "none":
                print(*rows[-1][1:], sep="  ", flush=True)
    real = [row for row in rows if row[1] != "none"]
    by_search = sum(row[1] == "found" for row in real)
    by_suite = sum(row[1] == "suite" for row in real)
    print("%d of %d found by the search, %d with the suites (of %d that there are); %.0f s of the processor" %
          (by_search, len(real), by_search + by_suite, len(every), sum(float(row[6]) for row in real)))


def main(arguments):
    if arguments[0] == "planted":
        seconds = float(arguments[1]) if len(arguments) > 1 else 60
        return planted(seconds, arguments[2] if len(arguments) > 2 else "") > 0
    minutes = float(arguments[2]) if len(arguments) > 2 else 600
    drawn(int(arguments[0]), int(arguments[1]), minutes, "search" not in arguments)
    return 0


os.makedirs(OUT)
try:
    sys.exit(main(sys.argv[1:]))
finally:
    shutil.rmtree(OUT)
