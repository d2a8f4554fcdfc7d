"""Reads what a compiler made of kernels: `kernel_loads.py ptx FILE`, nvcc's PTX, or `sass FILE`,
what `nvdisasm -c` prints of a cubin. FILE may be "-". A line a loop that loads whole packs:

    kernel loop loads bytes

of one turn and one thread: loads of 8 bytes or more on its longest way through the loop, and their
bytes; all of them are on their way before the first is used. And a line "WRONG kernel: .." for each
of these, after which the exit code is 1:

- In such a loop a register that a load fills is read before the loop's last independent load is
  issued (one whose address is not computed from what another load brought). The thread then waits
  with fewer loads under way than it could have. In PTX a move of one register to another is no
  read: the compiler of machine code leaves it out.
- A load or store is narrower than 8 bytes in the loop that moves the most bytes. What is in a loop
  inside of it does not count: there values that are not finite are looked at one by one.
- A multiplication and an addition are fused, outside of division and root (adam, ratio): the host
  does not fuse.

Loops are the natural loops of the control flow, without the loops in them: machine code has its
rare ways anywhere."""

import re
import sys

FUSES = ("adam", "ratio")  # division and root are sequences of fused steps, which round correctly
WIDE = 8


class Instruction:
    """What counts of one: registers read and written, the width of an access to global memory,
    where it goes."""

    def __init__(self, where, op, guarded):
        self.where, self.op, self.guarded = where, op, guarded
        self.reads, self.writes, self.address = [], [], []
        self.load = self.store = 0  # bytes
        self.target = None
        self.ends = False  # nothing comes behind it, unless it is guarded
        self.moves = False
        self.fuses = False


# ---- machine code ----

SASS_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
SASS_REGISTER = re.compile(r"\bR(\d+)((?:\.[A-Za-z0-9_]+)*)")
SASS_STORES = ("STG", "ST", "STS", "STL", "RED")


def sass_width(op):
    for text, width in ((".128", 16), (".64", 8), (".U8", 1), (".S8", 1), (".U16", 2), (".S16", 2)):
        if text in op:
            return width
    return 4


def sass_registers(text):
    found = []
    for number, rest in SASS_REGISTER.findall(text):
        found += range(int(number), int(number) + (2 if ".64" in rest else 1))
    return found


def sass_instruction(match):
    where, guard, op, rest = match.groups()
    found = Instruction("0x" + where, op, guard is not None)
    name = op.split(".")[0]
    operands = rest.split(",", 1)
    if name == "BRA":
        label = re.search(r"\((\.L[\w.]*)\)", rest)
        found.target = label.group(1) if label else None
        # The second form of a condition, `BRA P0, ..` and `BRA.DIV UR4, ..`.
        found.guarded = found.guarded or bool(re.match(r"\s*!?(P|UR|R)\d", rest))
    found.ends = name in ("BRA", "EXIT", "RET", "BRX", "JMP")
    writes = name not in SASS_STORES and bool(re.match(r"\s*R\d", operands[0]))
    if writes:
        rest = operands[1] if len(operands) > 1 else ""
    found.reads = sass_registers(rest)
    width = sass_width(op)
    if writes:
        first = int(SASS_REGISTER.search(operands[0]).group(1))
        words = 2 if re.search(r"\.WIDE|\.64|^D[A-Z]", op) else 1
        if name.startswith("LD"):
            words = max(1, width // 4)
        found.writes = list(range(first, first + words))
    if name in ("LDG", "LD"):
        found.load, found.address = width, found.reads
    if name in ("STG", "ST"):
        found.store = width
        data = int(SASS_REGISTER.findall(rest)[-1][0])
        found.reads += range(data, data + max(1, width // 4))
    found.fuses = name in ("FFMA", "FFMA32I", "DFMA")
    return found


def sass_kernels(lines):
    name, code, labels = None, [], {}
    for line in lines:
        begin = re.match(r"\.text\.(?:gf_kernel_)?(\w+):", line.strip())
        if begin:
            if name:
                yield name, code, labels
            name, code, labels = begin.group(1), [], {}
        label = re.match(r"\s*(\.L[\w.]*):", line)
        if label:
            labels[label.group(1)] = len(code)
        match = SASS_LINE.search(line)
        if match and name:
            code.append(sass_instruction(match))
    if name:
        yield name, code, labels


# ---- PTX ----

PTX_REGISTER = re.compile(r"%[a-z]+\d+\b")


def ptx_width(op):
    element = re.search(r"\.[busf](\d+)", op)
    vector = re.search(r"\.v(\d)", op)
    return int(element.group(1)) // 8 * (int(vector.group(1)) if vector else 1) if element else 4


def ptx_instruction(number, text):
    guard, text = re.match(r"(@!?%p\d+\s+)?(.*)", text).groups()
    op, _, rest = text.partition(" ")
    found = Instruction(f"line {number}", op, guard is not None)
    if op.startswith("bra"):
        found.target = rest.strip()
    found.ends = op.split(".")[0] in ("bra", "ret", "exit", "brx")
    is_store = op.startswith(("st.", "red."))
    first = re.match(r"\s*(\{[^}]*\}|[^,]*)", rest).group(1)
    operands = PTX_REGISTER.findall(rest)
    found.writes = [] if is_store or found.ends else PTX_REGISTER.findall(first)
    found.reads = operands[len(found.writes):] + (PTX_REGISTER.findall(guard) if guard else [])
    if op.startswith(("ld.global", "ld.u", "ld.f", "ld.v")):
        found.load, found.address = ptx_width(op), operands[len(found.writes):]
    if op.startswith(("st.global", "st.u", "st.f", "st.v")):
        found.store = ptx_width(op)
    found.moves = op.startswith("mov.") and len(found.reads) == 1
    found.fuses = bool(re.match(r"fma\.", op))
    return found


def ptx_kernels(lines):
    name, code, labels = None, [], {}
    for number, line in enumerate(lines, 1):
        line = line.split("//")[0].strip()
        begin = re.match(r"\.visible \.entry (?:gf_kernel_)?(\w+)", line)
        if begin:
            if name:
                yield name, code, labels
            name, code, labels = begin.group(1), [], {}
        label = re.match(r"(\$\w+):$", line)
        if label:
            labels[label.group(1)] = len(code)
        elif name and line.endswith(";") and not line.startswith("."):
            code.append(ptx_instruction(number, line.strip("{} ").rstrip(";")))
    if name:
        yield name, code, labels


# ---- loops ----


def successors(code, labels):
    after = []
    for i, one in enumerate(code):
        to = []
        if one.target in labels and labels[one.target] < len(code):
            to.append(labels[one.target])
        if (not one.ends or one.guarded) and i + 1 < len(code):
            to.append(i + 1)
        after.append(to)
    return after


def blocks_of(code, after):
    """Instructions that only run together: the first of each, and which blocks follow."""
    heads = {0}
    for i, several in enumerate(after):
        heads |= {to for to in several if to != i + 1 or len(several) > 1}
    heads |= {i + 1 for i, several in enumerate(after) if several != [i + 1] and i + 1 < len(code)}
    heads = sorted(heads)
    number = {head: b for b, head in enumerate(heads)}
    ends = heads[1:] + [len(code)]
    follows = [sorted({number[to] for to in after[end - 1]}) for end in ends]
    return heads, ends, follows


def order_of(follows):
    """Blocks that can be reached, each before those that follow it but by a loop."""
    seen, order, stack = {0}, [], [(0, iter(follows[0]))]
    while stack:
        block, rest = stack[-1]
        to = next((b for b in rest if b not in seen), None)
        if to is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(to)
            stack.append((to, iter(follows[to])))
    return order[::-1]


def dominators(order, follows):
    before = {b: [] for b in order}
    for b in order:
        for to in follows[b]:
            before[to].append(b)
    above = {b: None for b in order}
    above[order[0]] = {order[0]}
    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            known = [above[p] for p in before[b] if above[p] is not None]
            now = set.intersection(*known) | {b}
            if now != above[b]:
                above[b], changed = now, True
    return above, before


def loops_of(follows):
    """Header: blocks of its natural loop."""
    order = order_of(follows)
    above, before = dominators(order, follows)
    loops = {}
    for b in order:
        for head in follows[b]:
            if head not in above[b]:
                continue
            body, work = loops.setdefault(head, {head}), [b]
            while work:
                one = work.pop()
                if one not in body:
                    body.add(one)
                    work += before[one]
    return order, loops


def own_blocks(head, loops):
    """Of a loop without the loops in it."""
    own = loops[head]
    inner = [body for other, body in loops.items() if other != head and body < own]
    return own - set().union(*inner)


# ---- rules ----


def turn_of(code, blocks, heads, ends, follows, order, head):
    """One turn of a loop: who reads what a load of this turn fills, which loads depend on others,
    and which loads each block has."""
    inside = [b for b in order if b in blocks]
    filled = {b: set() for b in inside}
    tainted = {b: set() for b in inside}
    early, dependent, loads_at = [], set(), {}
    for b in inside:
        full, taint = set(filled[b]), set(tainted[b])
        for i in range(heads[b], ends[b]):
            one = code[i]
            wide = one.load >= WIDE
            if one.load and set(one.address) & taint:
                dependent.add(i)
            if not one.moves and set(one.reads) & full:
                early.append((b, i, sorted(set(one.reads) & full, key=str)))
            copies = one.moves and bool(set(one.reads) & full)
            taints = one.load > 0 or bool(set(one.reads) & taint)
            if not one.guarded:
                full -= set(one.writes)
                taint -= set(one.writes)
            if wide or copies:
                full |= set(one.writes)
            if taints:
                taint |= set(one.writes)
            if wide:
                loads_at.setdefault(b, []).append(i)
        for to in follows[b]:
            if to in filled and to != head:
                filled[to] |= full
                tainted[to] |= taint
    return inside, early, dependent, loads_at


def reachable(blocks, follows, head):
    """Block: those of the same turn behind it."""
    behind = {}
    for b in reversed(blocks):
        behind[b] = set()
        for to in follows[b]:
            if to in blocks and to != head and to in behind:
                behind[b] |= {to} | behind[to]
    return behind


def loop_judge(name, code, blocks, heads, ends, follows, order, head):
    wrong = []
    inside, early, dependent, loads_at = turn_of(code, blocks, heads, ends, follows, order, head)
    if not loads_at:
        return None, wrong
    behind = reachable(inside, follows, head)
    free = {b: [i for i in several if i not in dependent] for b, several in loads_at.items()}
    for b, i, registers in early:
        later = [l for l in free.get(b, []) if l > i]
        later += [l for other in behind[b] for l in free.get(other, [])]
        if later:
            wrong.append(f"{name}: {code[i].where}: {code[i].op} reads {registers[0]} before the "
                         f"load at {code[max(later)].where} is issued")
            break
    most = {}
    for b in reversed(inside):  # the way with the most bytes
        own = [code[i].load for i in free.get(b, [])]
        next_ = [most[to] for to in follows[b] if to in most and to != head]
        best = max(next_, default=(0, 0))
        most[b] = (best[0] + sum(own), best[1] + len(own))
    return most[head], wrong


def narrow_judge(name, code, loops, heads, ends):
    """Of the loops that move the most; of two such loops, one in the other, the inner one."""
    own = {h: [i for b in own_blocks(h, loops) for i in range(heads[b], ends[b])] for h in loops}
    width = [max(one.load, one.store) for one in code]
    moved = {h: sum(width[i] for i in own[h] if width[i] >= WIDE) for h in loops}
    hot = [h for h in loops if moved[h] == max(moved.values()) and moved[h] > 0]
    hot = [h for h in hot if not any(other != h and other in loops[h] for other in hot)]
    wrong = []
    for i in (i for head in hot for i in own[head]):
        if 0 < width[i] < WIDE:
            wrong.append(f"{name}: {code[i].where}: {code[i].op} moves {width[i]} bytes in its hot "
                         "loop")
    return wrong


def kernel_judge(name, code, labels):
    after = successors(code, labels)
    heads, ends, follows = blocks_of(code, after)
    order, loops = loops_of(follows)
    wrong, rows = [], []
    for head in sorted(loops, key=lambda h: heads[h]):
        own = own_blocks(head, loops)
        row, bad = loop_judge(name, code, own, heads, ends, follows, order, head)
        wrong += bad
        if row:
            rows.append((code[heads[head]].where, row[1], row[0]))
    wrong += narrow_judge(name, code, loops, heads, ends)
    fused = [one for one in code if one.fuses]
    if fused and not name.startswith(FUSES):
        wrong.append(f"{name}: {fused[0].where}: {fused[0].op} multiplies and adds at once")
    return rows, wrong


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("ptx", "sass"):
        sys.exit(__doc__)
    file = sys.stdin if sys.argv[2] == "-" else open(sys.argv[2], encoding="utf-8")
    kernels = (ptx_kernels if sys.argv[1] == "ptx" else sass_kernels)(file.read().splitlines())
    seen, wrong = 0, []
    for name, code, labels in kernels:
        seen += 1
        rows, bad = kernel_judge(name, code, labels)
        wrong += bad
        for where, loads, size in rows:
            print(f"{name} {where.replace('line ', 'line_')} {loads} {size}")
    for line in wrong:
        print("WRONG", line)
    if seen == 0:
        print("WRONG", sys.argv[2], "has no kernel")
    return 1 if wrong or seen == 0 else 0


sys.exit(main())
