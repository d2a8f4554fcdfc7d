# What was measured, as tables and charts ask for it: report.py says what a report is.
import statistics

NO_PEER = ('ours', 'bound', 'sockets', 'limit')
MODELS = {'resnet50': 'ResNet-50', 'gpt2': 'GPT-2 124M'}
WAYS = ('each', 'buckets', 'fused')


class Missing(Exception):
    """Something that is needed is not there; the text says what and how to get it."""


class Report:
    def __init__(self, report):
        self.about = report
        self.rows = {}
        for part in report['parts'].values():
            for row in part['rows']:
                self.rows.setdefault((row['bench'], row['where']), []).append(row)

    def places(self, bench):
        return [where for name, where in self.rows if name == bench]

    def row(self, bench, where, label, key=None):
        for row in self.rows.get((bench, where), []):
            if row['label'] == label and key in (None, row['key']):
                return row
        return None

    def median(self, bench, where, label, key):
        row = self.row(bench, where, label, str(key))
        return statistics.median(row['values']) if row and row['values'] else None

    def keys(self, bench, where, label):
        return [row['key'] for row in self.rows.get((bench, where), []) if row['label'] == label]

    def sizes(self, bench, where):
        return sorted((int(key) for key in self.keys(bench, where, 'ours')))

    def peers(self, bench, where):
        labels = {row['label'] for row in self.rows.get((bench, where), [])}
        return sorted(label for label in labels if not label.startswith(NO_PEER))

    def best(self, bench, where, keys, among=None):
        """The fastest peer: (time, its label), or None. Keys are ways to do one thing."""
        found = [
            (self.median(bench, where, peer, key), peer)
            for key in keys
            for peer in self.peers(bench, where)
            if among is None or peer in among
        ]
        found = [pair for pair in found if pair[0] is not None]
        return min(found) if found else None


# ---- cells ----
def size_name(size):
    for unit, name in ((1 << 20, 'MiB'), (1 << 10, 'KiB')):
        if size >= unit:
            return f'{size // unit} {name}'
    return f'{size} B'


def number(value, digits=3):
    if value is None:
        return '-'
    if value >= 100:
        return f'{value:.0f}'
    return f'{value:.{digits}g}' if value < 1 else f'{value:.3g}'


def time_of(us):
    if us is None:
        return '-'
    for unit, name in ((1e6, 's'), (1e3, 'ms')):
        if us >= unit:
            return f'{number(us / unit)} {name}'
    return f'{number(us)} us'


def ratio(above, below):
    return '-' if above is None or not below else f'{above / below:.2f}'


def table(head, rows):
    if not rows:
        return ['Not measured.']
    return ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head)] + [
        '| ' + ' | '.join(row) + ' |' for row in rows
    ]


def best_us(best):
    return best[0] if best else None


def model_name(where):
    model, place = where.split(', ', 1)
    return f'{MODELS.get(model, model)}, {place}' + (
        ' of a node' if place.endswith('ranks') and 'hosts' not in place else ''
    )
