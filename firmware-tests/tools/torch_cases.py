"""What test_torch.sh runs on each rank: CASE SCRATCH. Rank 0 prints "ok NAME" for what held on all
ranks; a rank on which it did not hold prints "not ok NAME: why"."""

import copy
import os
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradientflow as gf

RANK, WORLD = int(os.environ.get("GF_RANK", 0)), int(os.environ.get("GF_WORLD", 1))
SCRATCH = sys.argv[2]
SOCKETS = {"link": {"private_memory": True, "driver": "tcp"}}
STEPS = 6


def told(name, held, why=""):
    if not held:
        print(f"not ok {name}: on rank {RANK}: {why}", flush=True)
    elif RANK == 0:
        print(f"ok {name}", flush=True)


def batch(step, rank, size=8):
    torch.manual_seed(1000 * step + rank)
    return torch.randn(size, 6), torch.randint(0, 3, (size,))


class Net(nn.Module):
    """BatchNorm, a frozen parameter, one used by odd ranks alone, one by nobody, a weight used
    twice, one that is not contiguous."""

    def __init__(self, odd=True, again=False):
        super().__init__()
        torch.manual_seed(7 + RANK)  # other ones on each rank: rank 0's count
        self.first, self.norm = nn.Linear(6, 16), nn.BatchNorm1d(16)
        self.twice = nn.Linear(16, 16)
        self.frozen = nn.Linear(16, 16)
        self.frozen.requires_grad_(False)
        if odd:
            self.odd, self.nobody = nn.Linear(16, 3), nn.Linear(16, 3)
        self.last = nn.Parameter(torch.randn(3, 16).t())
        self.has_odd, self.again = odd, again

    def forward(self, value):
        value = self.norm(self.first(value)).relu()
        if self.again:  # recomputed in backward, which runs another backward inside
            value = checkpoint(lambda part: self.twice(part).relu(), value, use_reentrant=True)
        else:
            value = self.twice(self.twice(value)).relu()
        value = self.frozen(value)
        if self.again:  # the first gradient of all comes from a backward inside
            return checkpoint(lambda part: part @ self.last, value, use_reentrant=True)
        out = value @ self.last
        return out + self.odd(value) if self.has_odd and RANK % 2 else out


def optimizer_of(model, kind=torch.optim.SGD, **more):
    return kind([p for p in model.parameters() if p.requires_grad], lr=0.1,
                **(more or {"momentum": 0.9, "weight_decay": 0.01}))


def plain(model, optimizer, step):
    inputs, targets = batch(step, RANK)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def zeroed(model, optimizer, step):
    inputs, targets = batch(step, RANK)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def clipped(model, optimizer, step):
    inputs, targets = batch(step, RANK)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 0.1)
    optimizer.step()
    optimizer.zero_grad(set_to_none=step % 2 == 0)


def accumulated(model, optimizer, step):
    with model.no_sync():
        for part in range(2):
            inputs, targets = batch(100 + 2 * step + part, RANK)
            nn.functional.cross_entropy(model(inputs), targets).backward()
    plain(model, optimizer, step)


def added_up_alone():
    """A parameter that only one rank's pass under no_sync() uses: DDP 1.13 averages it not."""
    with gf.DistributedDataParallel(Net()) as model:
        inputs, targets = batch(100, RANK)
        with model.no_sync():
            nn.functional.cross_entropy(model(inputs), targets).backward()
        alone = torch.zeros(3, 16) if RANK == 0 else model.module.odd.weight.grad.clone()
        model.module.has_odd = False
        nn.functional.cross_entropy(model(inputs), targets).backward()
        wanted = model.all_reduce(alone) / WORLD
        told("no_sync_adds_up_what_the_last_pass_lacks",
             torch.equal(model.module.odd.weight.grad, wanted))


def evaluated(model, optimizer, step):
    plain(model, optimizer, step)
    model.eval()
    with torch.no_grad():
        model(batch(step, RANK)[0])
    model.train()


def backward_alone(model, optimizer, step):
    """Two losses, and a gradient that is asked for without a backward pass."""
    inputs, targets = batch(step, RANK)
    inputs.requires_grad_()
    output = model(inputs)
    torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    (nn.functional.cross_entropy(output, targets) + output.square().mean()).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def uneven(model, optimizer, _step):
    with model.join():
        for step in range(2 + 2 * RANK):
            plain(model, optimizer, step)


def ended(model):
    return [value.clone() for value in model.module.state_dict().values()]


def like_ddp(name, way, make=Net, steps=STEPS, optimizer=optimizer_of, equal=torch.equal,
             unused=True, **ours):
    """The same steps with DDP over Gloo and here end with the same bits, of buffers too."""
    results = []
    for mine in (False, True):
        net = make()
        if mine:
            model = gf.DistributedDataParallel(net, **ours)
        else:
            model = nn.parallel.DistributedDataParallel(net, find_unused_parameters=unused)
        used = optimizer(model)
        for step in range(steps):
            way(model, used, step)
        results.append(ended(model))
        if mine:
            made = model.steps  # of the library's, one for each exchange
            model.close()
    names = list(net.state_dict())
    apart = [key for key, a, b in zip(names, *results) if not equal(a, b)]
    told(name, not apart and (made == steps or way is uneven), f"{apart} differ, {made} steps")


def the_same(tensors):
    """Bits of all ranks."""
    mine = torch.cat([t.detach().double().reshape(-1) for t in tensors])
    every = [torch.empty_like(mine) for _ in range(WORLD)]
    dist.all_gather(every, mine)
    return all(torch.equal(mine, other) for other in every)


def begin_gloo():
    dist.init_process_group("gloo", init_method=f"file://{SCRATCH}/store", rank=RANK,
                            world_size=WORLD)


def case_ddp():
    begin_gloo()
    like_ddp("a_plain_script_ends_with_ddps_bits", plain)
    like_ddp("gradients_that_are_zeroed_in_place", zeroed)
    like_ddp("clip_grad_norm_is_unchanged", clipped)
    like_ddp("no_sync_adds_up", accumulated)
    like_ddp("evaluation_between_steps", evaluated)
    like_ddp("two_losses_and_autograd_grad", backward_alone)
    like_ddp("a_reentrant_checkpoint", plain, lambda: Net(odd=False, again=True),
             unused=False)
    like_ddp("adam", plain, optimizer=lambda model: optimizer_of(
        model, torch.optim.Adam, weight_decay=0.01))
    like_ddp("gradients_that_stay_the_programs", clipped, gradient_as_bucket_view=False)
    like_ddp("a_thread_that_polls_changes_no_bit", plain, progress=True)
    like_ddp("over_sockets", accumulated, progress=True, **SOCKETS)
    like_ddp("join_ends_with_ddps_bits", uneven, steps=1)
    added_up_alone()


def case_three():
    """Three ranks: DDP adds in another order, so its weights are near; all ranks' are the same."""
    begin_gloo()
    like_ddp("three_ranks_end_near_ddp", accumulated,
             equal=lambda a, b: torch.allclose(a.double(), b.double(), atol=1e-5))
    # what nobody uses any more has no gradient here, and one of zero with DDP
    like_ddp("three_ranks_join", uneven, lambda: Net(odd=False), steps=1, unused=False,
             equal=lambda a, b: torch.allclose(a.double(), b.double(), atol=1e-5))
    model = gf.DistributedDataParallel(Net())
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        plain(model, optimizer, step)
    told("three_ranks_have_the_same_bits", the_same(model.parameters()))
    model.close()


def case_one():
    """What one process computes of both ranks' batches, and what the library has beside DDP."""
    begin_gloo()
    one_process()
    of_samples()
    own_optimizer()
    two_optimizers()
    master_weights()
    sixteen_bits()
    not_finite()
    resume("")
    resume("_with_shared_state")
    refused()
    small_calls()


def one_process():
    model = gf.DistributedDataParallel(nn.Linear(6, 3))
    alone = nn.Linear(6, 3)
    alone.load_state_dict(model.module.state_dict())
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone))
    for step in range(3):
        plain(model, optimizer, step)
        sums = [torch.zeros_like(p) for p in alone.parameters()]
        for rank in range(WORLD):
            inputs, targets = batch(step, rank)
            loss = nn.functional.cross_entropy(alone(inputs), targets)
            for total, grad in zip(sums, torch.autograd.grad(loss, list(alone.parameters()))):
                total += grad / WORLD
        for param, total in zip(alone.parameters(), sums):
            param.grad = total
        other.step()
    told("one_process_ends_with_these_bits", all(
        torch.equal(a, b) for a, b in zip(alone.parameters(), model.module.parameters())))
    model.close()


def of_samples():
    """Ranks with 2 and 6 samples: the gradient of all 8."""
    model = gf.DistributedDataParallel(nn.Linear(6, 3), exchange={"average": "samples"})
    every = [batch(0, rank, 2 + 4 * rank) for rank in range(WORLD)]
    inputs, targets = every[RANK]
    model.samples(len(inputs))
    model.metric(10.0 + RANK)
    nn.functional.cross_entropy(model(inputs), targets, reduction="sum").backward()
    whole = nn.functional.cross_entropy(model.module(torch.cat([i for i, _ in every])),
                                        torch.cat([t for _, t in every]))
    wanted = torch.autograd.grad(whole, model.module.weight)[0]
    told("ranks_with_other_batches_give_the_mean_of_all_samples",
         torch.allclose(model.module.weight.grad, wanted, atol=1e-6))
    told("a_metric_is_summed", model.metrics() == 21.0, model.metrics())
    model.close()


def own_optimizer():
    """The library's SGD beside torch's."""
    results = []
    for kind in ("none", "sgd"):
        net = Net(odd=False)
        settings = {} if kind == "none" else {
            "optimizer": {"kind": kind, "momentum": 0.9, "weight_decay": 0.01}}
        with gf.DistributedDataParallel(net, **settings) as model:
            optimizer = optimizer_of(model)
            for step in range(STEPS):
                inputs, targets = batch(step, RANK)
                nn.functional.cross_entropy(model(inputs), targets).backward()
                if kind == "none":
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
                else:
                    model.step(0.1)
        results.append([p.detach() for p in net.parameters()])
    used = [a for a, (name, _) in zip(zip(*results), net.named_parameters())
            if not name.startswith(("odd", "nobody"))]
    told("the_librarys_optimizer_ends_near_torchs",
         all(torch.allclose(a, b, atol=1e-5) for a, b in used))
    told("its_parameters_outlive_the_job", all(torch.isfinite(p).all() for p in net.parameters()))


def master_weights():
    """Parameters of bf16 over fp32 weights of the library's: small steps are not lost."""
    torch.manual_seed(RANK)
    net = nn.Linear(6, 3).bfloat16()
    with gf.DistributedDataParallel(net, optimizer={"kind": "sgd", "half_weights": "bf16"}) as model:
        before = net.weight.detach().float().clone()
        for _ in range(64):
            model(torch.ones(1, 6, dtype=torch.bfloat16)).sum().backward()
            model.step(2.0**-12)
        moved = before - net.weight.detach().float()
        told("bf16_has_master_weights", bool(((moved - 2.0**-6).abs() < 2.0**-8).all()), moved)
        told("which_are_rank_0s", the_same([net.weight]))


def two_optimizers():
    """A file with an optimizer, and torch's beside it."""
    with gf.DistributedDataParallel(nn.Linear(6, 3), "config/local.cfg") as model:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plain(model, optimizer, 0)
        told("a_step_that_the_librarys_optimizer_did_not_apply_is_told", fails(
            gf.Error, "model.step(rate)", lambda: plain(model, optimizer, 1)))


def sixteen_bits():
    """Averages in bf16 and fp16 beside fp32, exactly where they are representable."""
    net = nn.Module()
    for name, dtype in (("f", torch.float32), ("h", torch.float16), ("b", torch.bfloat16)):
        setattr(net, name, nn.Parameter(torch.zeros(9, dtype=dtype)))
    net.forward = lambda x: sum((p.float() * x).sum() for p in net.parameters())
    model = gf.DistributedDataParallel(net)
    model(torch.arange(9.0) * (1 + 2 * RANK)).backward()
    wanted = torch.arange(9.0) * WORLD
    told("gradients_in_16_bits_are_averages", all(
        torch.equal(p.grad.float(), wanted) for p in net.parameters()),
        [p.grad for p in net.parameters()])
    model.close()


def not_finite():
    model = gf.DistributedDataParallel(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    before = ended(model)
    output = model(batch(0, RANK)[0]).sum()
    (output * (float("nan") if RANK else 1.0)).backward()
    optimizer.step()
    told("a_nan_of_one_rank_is_applied_on_none",
         model.skipped and all(torch.equal(a, b) for a, b in zip(before, ended(model))))
    plain(model, optimizer, 0)
    told("and_the_next_step_is", not model.skipped and
         not torch.equal(before[0], ended(model)[0]))
    model.close()


def resume(shared):
    """Six steps, and three with three more in a job that loads."""
    results = []
    for parts in ((6,), (3, 3)):
        step = 0
        for part, count in enumerate(parts):
            net = Net()
            optimizer = optimizer_of(net, torch.optim.Adam, weight_decay=0.01)
            model = gf.DistributedDataParallel(net, state=optimizer if shared else ())
            if part:
                more = model.load(f"{SCRATCH}/saved", optimizer)
                told(f"a_resumed_job_has_its_step{shared}", model.steps == 3 and
                     more == {"note": "so"})
            for _ in range(count):
                plain(model, optimizer, step)
                step += 1
            if RANK == 0:
                model.save(f"{SCRATCH}/saved", optimizer, note="so")
            dist.barrier()
            results.append(ended(model))
            model.close()
    told(f"a_resumed_job_ends_with_the_same_bits{shared}", all(
        torch.equal(a, b) for a, b in zip(results[0], results[2])))


def fails(kind, text, call):
    try:
        call()
    except kind as error:
        return text in str(error) or print(f"said: {error}")
    return print("was not refused")


def refused():
    linear = nn.Linear(2, 2)
    wrap = gf.DistributedDataParallel
    told("double_is_refused", fails(TypeError, "torch.float64", lambda: wrap(
        nn.Linear(2, 2).double())))
    told("nothing_to_train_is_refused", fails(RuntimeError, "no parameter", lambda: wrap(
        nn.Linear(2, 2).requires_grad_(False))))
    told("a_slip_in_a_setting_is_refused", fails(gf.Error, "did you mean", lambda: wrap(
        linear, exchange={"wir": "bf16"})))
    told("an_argument_that_is_none_is_refused", fails(TypeError, "nor a group", lambda: wrap(
        linear, buckets=3)))
    told("a_file_that_is_not_there_is_refused", fails(gf.Error, "/none.cfg", lambda: wrap(
        linear, "/none.cfg")))
    dist.barrier()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told("a_port_that_is_taken_is_named", fails(gf.Error, port, lambda: wrap(
            linear, job={"world": 2, "rank": 0, "ignore_environment": True},
            rendezvous={"address": "127.0.0.1:" + port, "insecure": True})))
    dist.barrier()
    told("ranks_with_other_models_hear_so", fails(gf.Error, "tensor", lambda: wrap(
        nn.Linear(2, 2 + RANK))))
    dist.barrier()
    clips = {"kind": "sgd", "clip_norm": 1.0}
    for sparse in (True, False):
        model = wrap(nn.Linear(64, 64), optimizer=clips, sparse={"enabled": sparse},
                     loss_scale={"enabled": False})
        if sparse:
            told("averages_scaled_after_their_norm_are_refused", fails(
                ValueError, "made their norm before", lambda: model.join(False)))
        else:
            told("and_are_not_with_dense_exchange", model.join(False) is not None)
        model.close()
    dist.barrier()


def small_calls():
    model = gf.DistributedDataParallel(nn.Linear(6, 3))
    with gf.DistributedDataParallel(nn.Linear(3, 1), job={"id": 2}) as other:  # as a GAN has
        other(model(batch(0, RANK)[0])).sum().backward()
        told("two_models_in_one_process", (model.steps, other.steps) == (1, 1))
    total = model.all_reduce(torch.full((5,), 1.0 + RANK))
    told("all_reduce", torch.equal(total, torch.full((5,), 3.0)))
    sent = model.broadcast(torch.arange(3) * (RANK + 1), 1)
    told("broadcast_of_any_type", torch.equal(sent, torch.arange(3) * 2))
    model.barrier()
    plain(model, torch.optim.SGD(model.parameters(), lr=0.1), 0)
    told("stats", model.stats()["steps"] == 2 and model.stats()["produced_bytes"] > 0)
    told("a_copy_is_refused", fails(TypeError, "one job", lambda: copy.deepcopy(model)))
    child = os.fork()
    if child == 0:
        answer = fails(gf.Error, "forked child", lambda: model.steps)
        os._exit(0 if answer else 1)
    told("a_forked_child_is_told", os.waitpid(child, 0)[1] == 0)
    model(batch(0, 0)[0]).sum().backward()
    model.close()
    told("gradients_outlive_the_job", torch.isfinite(model.module.weight.grad).all())
    told("a_forward_pass_of_a_closed_job_is_told", fails(
        gf.Error, "after close()", lambda: model(batch(0, 0)[0])))
    with torch.no_grad():
        told("but_evaluation_is_not", model(batch(0, 0)[0]).shape == (8, 3))


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((6,), float(index)), index % 3


HEARD = 25  # seconds; exchange.timeout is 30


def case_ends():
    """An exception, Ctrl-C and a kill, each heard by the other rank long before exchange.timeout."""
    model, begin = gf.DistributedDataParallel(nn.Linear(6, 3)), time.monotonic()
    try:
        with model:
            if RANK == 1:
                time.sleep(0.3)  # the other one has opened, too
                raise ValueError("of the program")
            plain(model, torch.optim.SGD(model.parameters(), lr=0.1), 0)
            told("an_exception_is_heard", False, "nothing was")
    except (ValueError, gf.Error) as error:
        told("an_exception_is_heard", (RANK == 1) == isinstance(error, ValueError) and
             time.monotonic() - begin < HEARD, f"{error!r}, {time.monotonic() - begin} s")
    time.sleep(0.2)
    model, begin = gf.DistributedDataParallel(nn.Linear(6, 3)), time.monotonic()
    try:
        if RANK == 0:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            time.sleep(0.6)
        plain(model, torch.optim.SGD(model.parameters(), lr=0.1), 0)
        told("ctrl_c_is_served_in_a_wait", False, "it was not")
    except (KeyboardInterrupt, gf.Error) as error:
        told("ctrl_c_is_served_in_a_wait", (RANK == 0) == isinstance(error, KeyboardInterrupt) and
             time.monotonic() - begin < HEARD, f"{error!r}, {time.monotonic() - begin} s")
    time.sleep(0.2)
    begin = time.monotonic()
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        gf.DistributedDataParallel(nn.Linear(6, 3), job={
            "world": 2, "rank": 1 - RANK, "id": 5 + RANK, "ignore_environment": True},
            rendezvous={"address": f"127.0.0.{2 + RANK}:7117"})
    except KeyboardInterrupt:
        told("and_where_a_rank_does_not_come", time.monotonic() - begin < HEARD)
    time.sleep(0.2)
    model = gf.DistributedDataParallel(nn.Linear(6, 3), progress=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.DataLoader(Images(), batch_size=4, num_workers=1)
    model.barrier()
    begin = time.monotonic()
    try:
        for step, (inputs, targets) in enumerate(data):
            if RANK == 1 and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)  # its loader's child lives
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            begin = time.monotonic()
        told("a_kill_beside_a_loader_is_heard", False, "nothing was")
    except gf.RankLost as error:
        told("a_kill_beside_a_loader_is_heard", "rank 1 died" in str(error) and
             time.monotonic() - begin < HEARD, f"{error!r}, {time.monotonic() - begin} s")


def case_exits():
    """Rank 1 ends in the middle by itself."""
    model, begin = gf.DistributedDataParallel(nn.Linear(6, 3)), time.monotonic()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for step in range(4):
            if RANK == 1 and step == 2:
                sys.exit(0)
            plain(model, optimizer, step)
    except gf.Error as error:
        told("an_exit_in_the_middle_is_heard", "rank 1" in str(error) and
             time.monotonic() - begin < HEARD, f"{error!r}, {time.monotonic() - begin} s")


def case_elastic():
    """SCRATCH STEPS: rank 1 dies in step 20; the others go on. Of two, the other one trains until it
    has come in again, and both make that many steps more."""
    more = end = int(sys.argv[3])
    net = Net(odd=False)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)
    model = gf.DistributedDataParallel(net, state=optimizer)
    came_in = model.rejoined
    if came_in:
        end = model.steps + more
    while model.steps < end or model.world == 1:
        step = model.steps
        if step == 20 and RANK == 1 and not came_in:
            os.kill(os.getpid(), signal.SIGKILL)
        world = model.world
        time.sleep(0.02 if world == 1 else 0)
        try:
            plain(model, optimizer, step)
            if model.due:
                model.survive()
            if model.world > world:
                end = model.steps + more
        except gf.RankLost:
            model.survive()
    state = [p for p in model.parameters()] + [
        value for p in optimizer.state.values() for value in p.values()]
    digest = torch.cat([t.detach().double().reshape(-1) for t in state])
    print(f"ended: {model.world} ranks, came in {came_in}, step {model.steps}, "
          f"{hash(tuple(digest.tolist()))}", flush=True)
    model.close()


def case_launcher():
    """Started by torchrun or mpirun: how many ranks met, and what they add up to."""
    model = gf.DistributedDataParallel(nn.Linear(6, 3))
    plain(model, torch.optim.SGD(model.parameters(), lr=0.1), 0)
    total = model.all_reduce(torch.tensor([1.0 + model.rank]))
    if model.rank == 0:
        print(f"met: {model.world} ranks, {int(total)}", flush=True)
    # no close(): the end of the program does it


torch.set_num_threads(1)
globals()["case_" + sys.argv[1]]()
