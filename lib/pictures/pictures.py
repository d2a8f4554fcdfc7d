#!/usr/bin/env python3
# The pictures of the pages, as SVG: `make pictures` writes them beside this file, and --check names
# those that differ. Plain text to SVG, so that nothing needs to be installed and the same text gives
# the same bytes. Colors follow the reader's light or dark mode. A picture's title is its description
# for those who do not see it; pages repeat it as alternative text.
import os
import sys
from xml.sax.saxutils import escape

STYLE = '''<style>
svg { font: 13px sans-serif } .page { fill: #fff }
text { fill: #24292f } .dim { fill: #57606a; font-size: 12px } .head { font-weight: bold }
.box { fill: #f3f5f7; stroke: #8c959f } .mine { fill: #dcf2e8; stroke: #0a7f5a }
.out { fill: #fdf3e3; stroke: #b7791f }
.line { stroke: #57606a; fill: none } .thin { stroke: #afb8c1; fill: none; stroke-dasharray: 4 4 }
.tip { fill: #57606a } .bad { stroke: #c2410c; fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .dim { fill: #9198a1 }
.box { fill: #1b222c; stroke: #6e7681 } .mine { fill: #0f3d2e; stroke: #3fb68b }
.out { fill: #3d2f12; stroke: #d29922 }
.line { stroke: #9198a1 } .thin { stroke: #484f58 } .tip { fill: #9198a1 } .bad { stroke: #f0883e }
}
</style>'''


class Picture:
    def __init__(self, width, height, title):
        self.size, self.title, self.parts = (width, height), title, []

    def text(self, x, y, text, kind='', anchor='middle'):
        kind = f' class="{kind}"' if kind else ''
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'
        )

    def box(self, x, y, width, height, lines='', kind='box'):
        """Lines in the middle of it; the first one is bold if there are several."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"'
            f' class="{kind}"/>'
        )
        lines = lines.split('\n') if lines else []
        for at, line in enumerate(lines):
            self.text(
                x + width / 2,
                y + height / 2 + 5 - 8.5 * (len(lines) - 1) + 17 * at,
                line,
                ('head' if at == 0 else 'dim') if len(lines) > 1 else '',
            )

    def line(self, x1, y1, x2, y2, kind='line'):
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"/>')

    def arrow(self, x1, y1, x2, y2, kind='line'):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        self.line(x1, y1, x2 - 6 * ux, y2 - 6 * uy, kind)
        bx, by = x2 - 9 * ux, y2 - 9 * uy
        self.parts.append(
            '<path'
            f' d="M{x2:g} {y2:g}L{bx - 4 * uy:.1f} {by + 4 * ux:.1f}'
            f'L{bx + 4 * uy:.1f} {by - 4 * ux:.1f}Z"'
            ' class="tip"/>'
        )

    def svg(self):
        width, height = self.size
        return '\n'.join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                    f' width="{width}" height="{height}" role="img">'
                ),
                f'<title>{escape(self.title)}</title>',
                STYLE,
                f'<rect width="{width}" height="{height}" class="page"/>',
                *self.parts,
                '</svg>',
                '',
            ]
        )


def sequence(title, actors, steps, width=760):
    """Actors are columns and steps go down.

    A step: (from, to, text), ('note', actor, text), ('all', text), ('end', actor).
    """
    height = 74 + sum(38 if step[0] == 'all' else 34 for step in steps) + 10
    picture = Picture(width, height, title)
    room = width / len(actors)
    at = {name: room * (index + 0.5) for index, name in enumerate(actors)}
    ends = {}
    y = 74
    for step in steps:
        if step[0] == 'end':
            ends[step[1]] = y + 6
        y += 38 if step[0] == 'all' else 34
    for name, x in at.items():
        picture.box(
            x - room / 2 + 8,
            12,
            room - 16,
            38,
            name,
            'mine' if 'coordinator' in name or 'library' in name else 'box',
        )
        picture.line(x, 50, x, ends.get(name, height - 8), 'thin')
    y = 74
    for step in steps:
        if step[0] == 'all':
            picture.parts.append(
                f'<rect x="8" y="{y - 12}" width="{width - 16}" height="26" rx="5" class="out"/>'
            )
            picture.text(width / 2, y + 5, step[1])
            y += 38
            continue
        if step[0] == 'note':
            picture.text(at[step[1]], y + 4, step[2], 'dim')
        elif step[0] == 'end':
            x = at[step[1]]
            picture.line(x - 8, y - 2, x + 8, y + 14, 'bad')
            picture.line(x - 8, y + 14, x + 8, y - 2, 'bad')
        else:
            x1, x2 = at[step[0]], at[step[1]]
            picture.arrow(x1, y + 8, x2, y + 8)
            picture.text((x1 + x2) / 2, y + 2, step[2])
        y += 34
    return picture


def layers():
    p = Picture(
        760,
        372,
        (
            'Layers: a training program calls lib, lib calls ops, ops and lib call drivers; arrows'
            ' go down only'
        ),
    )
    p.box(
        30,
        14,
        700,
        46,
        (
            'your training program\nforward, backward, data; tools/ are such programs, config/'
            ' reads a file for them'
        ),
        'box',
    )
    p.arrow(380, 60, 380, 84)
    p.box(30, 84, 700, 112, '', 'mine')
    p.text(380, 103, 'lib/   gradientflow.h is its only public header', 'head')
    for at, (name, what) in enumerate(
        (
            ('core', 'step, vote'),
            ('control', 'who is in'),
            ('sparse', 'what is sent'),
            ('optimizer', 'SGD, AdamW'),
            ('state', 'checkpoints'),
            ('observe', 'trace, stats'),
        )
    ):
        p.box(42 + at * 114, 116, 106, 66, f'{name}\n{what}', 'box')
    p.arrow(250, 196, 250, 220)
    p.arrow(650, 196, 650, 284)
    p.box(30, 220, 560, 40, '', 'mine')
    p.text(
        310,
        245,
        'ops/   element ops (cast, sum, update) and collectives (ring, halving, direct, ..)',
    )
    p.arrow(250, 260, 250, 284)
    p.box(30, 284, 700, 76, '', 'mine')
    p.text(380, 303, 'drivers/   the outside world, each a table of functions', 'head')
    for at, (name, what) in enumerate(
        (
            ('link', 'shared memory, sockets, UCX'),
            ('channel', 'control frames'),
            ('gpu', 'host, CUDA'),
            ('clock', 'nanoseconds'),
            ('sim', 'all of it simulated'),
        )
    ):
        width = (200, 122, 96, 110, 148)
        x = 42 + sum(width[:at])
        p.box(x, 313, width[at] - 8, 40, f'{name}\n{what}', 'box')
    return p


def gradient():
    p = Picture(
        760,
        396,
        (
            "A gradient's way through one step: backward writes tensors into the pool, neighbours"
            " travel as a fused buffer, all ranks vote, then weights change"
        ),
    )
    p.text(100, 22, 'backward', 'head')
    p.text(420, 22, 'this library, on each rank', 'head')
    p.text(690, 22, 'other ranks', 'head')
    for at in range(4):
        y = 36 + at * 46
        p.box(30, y, 140, 36, f'layer {3 - at} done', 'box')
        p.arrow(170, y + 18, 214, y + 18)
        p.box(214, y, 90, 36, f'tensor {at}', 'mine')
    for at, (y, height, text) in enumerate(
        ((36, 128, 'fused buffer 0\ncast, sum, cast'), (174, 36, 'fused buffer 1'))
    ):
        p.arrow(304, y + height / 2, 340, y + height / 2)
        p.box(340, y, 150, height, text, 'mine')
        p.arrow(490, y + height / 2 - 5, 622, y + height / 2 - 5)
        p.arrow(622, y + height / 2 + 7, 490, y + height / 2 + 7)
        p.box(622, y, 124, height, 'the same buffer', 'out')
        p.text(556, y + height / 2 - 12, ('shared memory,' if at == 0 else 'a collective'), 'dim')
        if at == 0:
            p.text(556, y + height / 2 + 24, 'sockets or a fabric', 'dim')
    p.arrow(415, 210, 415, 238)
    p.box(214, 238, 276, 42, 'vote\nfinite? how many samples? loss', 'mine')
    p.arrow(490, 254, 622, 254)
    p.arrow(622, 266, 490, 266)
    p.box(622, 238, 124, 42, 'vote', 'out')
    p.arrow(352, 280, 352, 306)
    p.box(214, 306, 276, 42, 'gf_update()\ndecay, LARS, momentum; weights', 'mine')
    p.text(556, 331, 'all ranks, or none', 'dim')
    p.arrow(14, 40, 14, 348)
    p.text(
        30,
        372,
        'time goes down; a buffer is under way while backward computes the layers below it',
        'dim',
        'start',
    )
    return p


def ring():
    p = Picture(
        760,
        330,
        (
            'A ring of three ranks: each block is summed on its way around and then handed on;'
            ' slices of a block overlap'
        ),
    )
    p.text(
        20,
        24,
        (
            'Three ranks, three blocks. In each phase a rank sends a block to the right and takes'
            ' one from the left.'
        ),
        '',
        'start',
    )
    sums = (
        (('a0', 'b0', 'c0'), ('a1', 'b1', 'c1'), ('a2', 'b2', 'c2')),
        (('a0', 'b0', 'c0+c2'), ('a1+a0', 'b1', 'c1'), ('a2', 'b2+b1', 'c2')),
        (('a0', 'B', 'c0+c2'), ('a1+a0', 'b1', 'C'), ('A', 'b2+b1', 'c2')),
        (('A', 'B', 'C'), ('A', 'B', 'C'), ('A', 'B', 'C')),
    )
    titles = ('before', 'phase 1: added', 'phase 2: a block is whole', 'phases 3, 4: handed on')
    for column, (title, ranks) in enumerate(zip(titles, sums)):
        x = 62 + column * 176
        p.text(x + 74, 54, title, 'dim')
        for rank, blocks in enumerate(ranks):
            y = 66 + rank * 46
            if column == 0:
                p.text(8, y + 22, f'rank {rank}', 'head', 'start')
            for at, block in enumerate(blocks):
                p.box(x + at * 52, y, 48, 34, block, 'mine' if block.isupper() else 'box')
        if column < 3:
            p.arrow(x + 158, 130, x + 173, 130)
    p.text(
        20,
        232,
        (
            'Inside a block: slices of 256 KiB, several under way, so that adding hides behind the'
            ' wire.'
        ),
        '',
        'start',
    )
    for at in range(4):
        p.box(62 + at * 100, 246, 92, 26, f'slice {at} sent', 'out')
        p.box(122 + at * 100, 278, 92, 26, f'slice {at} added', 'mine')
    p.text(600, 263, 'network', 'dim', 'start')
    p.text(600, 296, 'this rank', 'dim', 'start')
    p.arrow(62, 318, 590, 318)
    p.text(600, 322, 'time', 'dim', 'start')
    return p


def direct():
    p = Picture(
        760,
        322,
        (
            'direct: each rank of a node sums its own block over the mapped memory of all ranks and'
            ' writes the result to all'
        ),
    )
    p.text(
        20,
        24,
        (
            'Ranks of a node map each other\u2019s memory. Rank 2 sums block 2 over all, in rank'
            ' order.'
        ),
        '',
        'start',
    )
    for rank in range(3):
        y = 44 + rank * 62
        p.text(20, y + 26, f'memory of rank {rank}', 'head', 'start')
        for block in range(3):
            p.box(160 + block * 84, y, 78, 44, f'block {block}', 'mine' if block == 2 else 'box')
        p.arrow(406, y + 15, 548, 114 + rank * 12)
        p.arrow(548, 134 + rank * 12, 410, y + 30)
    p.box(548, 100, 180, 70, 'rank 2\nadds in fp32, writes to all', 'out')
    p.text(500, 66, 'reads', 'dim')
    p.text(500, 226, 'writes', 'dim')
    p.text(
        20,
        254,
        (
            'Ranks 0 and 1 do so with blocks 0 and 1 at the same time. No message is sent: ranks'
            ' wait for two'
        ),
        '',
        'start',
    )
    p.text(
        20,
        273,
        (
            'flags, "my data is there" and "my block is done". Every byte is read once and written'
            ' once.'
        ),
        '',
        'start',
    )
    p.text(
        20,
        302,
        (
            'Up to 1 KiB one barrier is enough: a rank copies its data next to its flag, and all'
            ' read all.'
        ),
        'dim',
        'start',
    )
    return p


def states():
    p = Picture(
        760,
        262,
        (
            'States of a context: opening, ready, in a step, failed, regrouping, closed, and which'
            ' calls lead from one to the next'
        ),
    )
    boxes = (
        (14, 40, 'opening\ngf_open_poll()'),
        (256, 40, 'ready\nrequests, gf_update()'),
        (574, 40, 'in a step\ngf_tensor_ready()'),
        (574, 170, 'failed\nevery call: the error'),
        (256, 170, 'regrouping\ngf_regroup_poll()'),
        (14, 170, 'closed\nmemory is yours'),
    )
    for x, y, text in boxes:
        p.box(x, y, 172, 54, text, 'mine')
    p.arrow(186, 67, 256, 67)
    p.text(221, 60, 'all here', 'dim')
    p.arrow(428, 58, 574, 58)
    p.text(501, 52, 'gf_step_begin()', 'dim')
    p.arrow(574, 80, 428, 80)
    p.text(501, 96, 'gf_step_wait()', 'dim')
    p.arrow(660, 94, 660, 170)
    p.text(652, 128, 'a rank died, or a deadline', 'dim', 'end')
    p.text(652, 144, 'passed: from any state', 'dim', 'end')
    p.arrow(574, 197, 428, 197)
    p.text(501, 190, 'gf_regroup_begin()', 'dim')
    p.arrow(342, 170, 342, 94)
    p.text(334, 144, 'next generation', 'dim', 'end')
    p.arrow(270, 94, 110, 170)
    p.text(150, 122, 'gf_close()', 'dim', 'end')
    p.text(
        14,
        250,
        (
            'gf_regroup_begin() also leads from ready, where gf_regroup_due() says that somebody'
            ' waits or leaves.'
        ),
        'dim',
        'start',
    )
    return p


def handshake():
    dials, takes = 'who dials', 'who accepts'
    return sequence(
        (
            'The handshake of a connection: nonces both ways and proofs of the key, then frames'
            ' with a MAC'
        ),
        [dials, takes],
        [
            (dials, takes, 'connect'),
            (takes, dials, 'NONCE: a new number for this connection'),
            (dials, takes, 'HELLO: who I am, my nonce; proof of the key over all of it'),
            ('note', takes, 'checks the proof before anything else'),
            (takes, dials, 'ANSWER: let in; or REFUSAL: why not'),
            ('all', 'both derive MAC keys from the job’s key and the two nonces'),
            (dials, takes, 'frames, each with its number and a MAC'),
            (takes, dials, 'frames, each with its number and a MAC'),
            ('note', takes, 'a frame that does not fit ends the connection'),
        ],
        640,
    )


def regroup():
    one, two, coordinator, new = (
        'member, rank 0',
        'member, rank 1',
        'coordinator',
        'a process that waits',
    )
    return sequence(
        (
            'A regroup: rank 1 dies, the coordinator tells the error, collects READY, lists the'
            ' next generation and begins it'
        ),
        [one, coordinator, two, new],
        [
            (one, coordinator, 'STATUS: step, operation'),
            (two, coordinator, 'STATUS'),
            ('end', two),
            ('note', coordinator, 'the kernel ends the connection'),
            (new, coordinator, 'OFFER: settings, tensors'),
            (coordinator, one, 'ERROR: rank 1 died'),
            ('note', one, 'ends what is under way'),
            (one, coordinator, 'READY: 41 steps'),
            (coordinator, one, 'LIST: rank 0 of 2'),
            (coordinator, new, 'LIST: number 2, rank 1 of 2'),
            (one, coordinator, 'ENDPOINT'),
            (new, coordinator, 'ENDPOINT: where its link listens'),
            (coordinator, one, 'GO: all endpoints'),
            (coordinator, new, 'GO: all endpoints, who has the state'),
            ('all', 'generation 2: data connections, the common state, then the next step'),
        ],
        760,
    )


def join():
    one, two, coordinator = 'rank 0', 'rank 1', 'coordinator'
    return sequence(
        (
            'The join: every rank offers what must be equal; the coordinator compares, lists the'
            ' ranks and begins generation 1'
        ),
        [one, coordinator, two],
        [
            (one, coordinator, 'OFFER: settings, tensors, version'),
            (two, coordinator, 'OFFER: settings, tensors, version'),
            ('note', coordinator, 'all here, all equal? else REFUSED, with both values'),
            (coordinator, one, 'LIST: rank 0 of 2'),
            (coordinator, two, 'LIST: rank 1 of 2'),
            (one, coordinator, 'ENDPOINT'),
            (two, coordinator, 'ENDPOINT'),
            (coordinator, one, 'GO: all endpoints, a secret'),
            (coordinator, two, 'GO: all endpoints, a secret'),
            ('all', 'ranks connect to each other; the coordinator carries no gradient'),
        ],
        700,
    )


PICTURES = {
    'layers': layers,
    'gradient': gradient,
    'ring': ring,
    'direct': direct,
    'states': states,
    'handshake': handshake,
    'join': join,
    'regroup': regroup,
}


def main():
    folder, check, code = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:] == ['--check'], 0
    for name, make in PICTURES.items():
        path, text = f'{folder}/{name}.svg', make().svg()
        if check:
            same = os.path.exists(path) and open(path, encoding='utf-8').read() == text
            if not same:
                print(f'lib/pictures/{name}.svg')
                code = 1
            continue
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
    return code


if __name__ == '__main__':
    sys.exit(main())
