"""PyTorch over GradientFlow: DistributedDataParallel for a script that uses torch's today.

    import gradientflow as gf
    model = gf.DistributedDataParallel(model)

This needs torch 1.13 or later and the shared library; nothing is built, as calls go through ctypes.
The page "With PyTorch" (PYTORCH.md) says what is where DDP has it.

The library allows one thread at a time per context, so each call is made under the job's lock;
ctypes releases the GIL meanwhile. A wait returns to Python every WAIT_NS, so that signals are
served."""

import atexit
import contextlib
import ctypes
import functools
import glob
import logging
import os
import re
import sys
import threading
import time

import torch

__all__ = ["DistributedDataParallel", "Error", "RankLost", "library"]

AGAIN, FULL = 1, 2  # GF_AGAIN, GF_FULL
LOST = (-5, -6, -7)  # GF_ERR_LINK, GF_ERR_TIMEOUT, GF_ERR_PEER: survive() goes on after these
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # gf_type
REDUCTIONS = {"sum": 0, "min": 1, "max": 2}  # gf_reduction
NO_DECAY = 2  # GF_TENSOR_NO_DECAY
METRICS = 3  # the program's; in the library's fourth each rank says how many tensors it lacks
LACKING = 3
WAIT_NS = 50_000_000
ERROR_BYTES = 512  # GF_CONFIG_ERROR_BYTES
LEAVE_S = 10.0  # a program that ends without close() waits so long for the other ranks
STAGE_BYTES = 4 << 20  # parameters and buffers that travel together

log = logging.getLogger("gradientflow")


class Error(RuntimeError):
    """A call of the library failed. status is its name, as in "GF_ERR_MISMATCH"."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}" if status else text)
        self.status = status


class RankLost(Error):
    """A rank has died, or cannot be reached. An elastic job goes on with survive()."""


# ---- the library ----

class _Tensor(ctypes.Structure):  # struct gf_tensor
    _fields_ = [("name", ctypes.c_char_p), ("elem_count", ctypes.c_uint64),
                ("flags", ctypes.c_uint32), ("type", ctypes.c_uint32)]


class _Extra(ctypes.Structure):  # struct gf_state_extra
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64)]


class _Stats(ctypes.Structure):  # struct gf_stats
    _fields_ = [("size_bytes", ctypes.c_uint32), ("path", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in (
            "steps", "steps_skipped", "wire_bytes", "mapped_bytes", "control_bytes", "messages",
            "produced_bytes", "copied_bytes", "operations", "wait_ns", "exchange_ns",
            "last_wait_ns", "last_exchange_ns", "last_wire_bytes", "foreign_bytes")] + [
        ("buffer_count", ctypes.c_uint32), ("loss_scale", ctypes.c_float),
        ("slowest_peer", ctypes.c_uint32), ("slowest_share_percent", ctypes.c_uint32),
        ("slowest_late_ns", ctypes.c_uint64)]


_Request = ctypes.c_uint64 * 8  # struct gf_request
# These layouts are by hand; the library is asked whether it has the same when it is loaded.
LAYOUTS = {"gf_tensor": _Tensor, "gf_state_extra": _Extra, "gf_stats": _Stats,
           "gf_request": _Request}

_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_TAKE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_P, _U32, _U64, _F32, _F64, _S = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64,
                                  ctypes.c_float, ctypes.c_double, ctypes.c_char_p)
# name: result, arguments behind the context. A result of None is a status.
CALLS = {
    "gf_open_wait_for": (None, (_U64,)), "gf_close": (None, ()),
    "gf_close_wait_for": (None, (_U64,)),
    "gf_rank": (_U32, ()), "gf_world": (_U32, ()), "gf_first_rank": (_U32, ()),
    "gf_gradient": (_U64, (_U32,)), "gf_weight": (_U64, (_U32,)),
    "gf_weight_half": (_U64, (_U32,)), "gf_weights_written": (None, ()),
    "gf_step_begin": (None, ()), "gf_step_samples": (None, (_U64,)),
    "gf_step_metric": (None, (_U32, _F64)), "gf_metric": (_F64, (_U32,)),
    "gf_tensor_ready": (None, (_U32, _U64)), "gf_tensor_copy": (None, (_U32, _P, _U64)),
    "gf_tensor_skip": (None, (_U32,)), "gf_step_poll": (None, ()),
    "gf_step_skipped": (ctypes.c_bool, ()), "gf_gradient_scale": (_F32, ()),
    "gf_update": (None, (_F32,)), "gf_updated": (None, ()), "gf_queue_follow": (None, (_U64,)),
    "gf_loss_scale": (_F32, ()), "gf_rate": (_F32, (_U64,)),
    "gf_allreduce_by": (None, (_U32, _U64, _U64, _U32, _P)),
    "gf_broadcast": (None, (_U64, _U64, _U32, _U32, _P)), "gf_barrier": (None, (_P,)),
    "gf_request_wait_for": (None, (_P, _U64)), "gf_step_wait_for": (None, (_U64,)),
    "gf_abort": (ctypes.c_int, ()), "gf_heartbeat": (None, ()),
    "gf_state_bytes": (_U64, ()), "gf_state_save": (None, (_P, _U64)),
    "gf_state_load": (None, (_P, _U64)), "gf_regroup_begin": (None, ()),
    "gf_regroup_wait_for": (None, (_U64,)), "gf_regroup_due": (_U32, ()), "gf_leave": (None, ()),
    "gf_left": (ctypes.c_bool, ()), "gf_rejoined": (ctypes.c_bool, ()), "gf_steps": (_U64, ()),
    "gf_stats_read": (None, (_P,)),
}


def _library_paths():
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.environ.get("GF_LIBRARY")
    for folder in ("../../../lib", "../../build"):  # as installed, and in the sources
        yield from sorted(glob.glob(os.path.join(here, folder, "libgradientflow.so.*[0-9]")))
    yield "libgradientflow.so"


@functools.lru_cache(maxsize=None)
def library():
    """The shared library, loaded: GF_LIBRARY, that of this file's prefix, or the system's."""
    tried = []
    for path in filter(None, _library_paths()):
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        if not hasattr(loaded, "gf_struct_bytes"):
            raise ImportError(f"gradientflow: {path} is older than {__file__}")
        for name, (result, arguments) in CALLS.items():
            call = getattr(loaded, name)
            call.restype = ctypes.c_int if result is None else result
            call.argtypes = (_P,) + arguments
        loaded.gf_status_name.restype = loaded.gf_error_text.restype = _S
        loaded.gf_error_text.argtypes = (_P,)
        for name, layout in LAYOUTS.items():
            if loaded.gf_struct_bytes(name.encode()) != ctypes.sizeof(layout):
                raise ImportError(f"gradientflow: {path} is of another version than {__file__}: "
                                  f"struct {name} has {loaded.gf_struct_bytes(name.encode())} "
                                  f"bytes there, {ctypes.sizeof(layout)} here")
        return loaded
    raise ImportError("gradientflow: no shared library; GF_LIBRARY may name it: " +
                      "; ".join(tried))


def _in_file(path, key, value):
    """Does the configuration file set this key so? What it means is the library's to say."""
    if path is None:
        return False
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [re.sub(r"(#|//).*", "", line) for line in file]
    except OSError:
        return False  # the library says why
    return re.search(rf'\b{key}\s*[=:]\s*"?{value}\b', "".join(lines)) is not None


def _setting(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(settings):
    """{"exchange": {"wire": "bf16"}} as ["exchange.wire=bf16"]."""
    texts = []
    for group, values in settings.items():
        if not isinstance(values, dict):
            raise TypeError(f"{group}={values!r}: neither an argument of DistributedDataParallel "
                            "nor a group of settings, as exchange={'wire': 'bf16'}")
        texts += [f"{group}.{key}={_setting(value)}" for key, value in values.items()]
    return texts


# ---- a job: one context, its lock, its waits ----

class _Job:
    def __init__(self, path, settings, tensors, extra):
        self.library = library()
        self.lock = threading.RLock()
        self.gf = _P()
        self.said = None  # the newest error in the library's log
        self.raised = None  # in a callback, where Python would drop it
        self.forked = False
        self.detach = None  # what points into the library's memory lets go of it
        self.stepping = False  # between gf_step_begin() and the end of the step
        self.posted = None  # the newest request, which the library may still know
        self.log, self.take = _LOG(self._log), _TAKE(self._take)  # as long as the context
        self.kept = (tensors, extra)
        _jobs.add(self)
        try:
            self._open(path, settings, tensors, extra)
            self.wait("gf_open_wait_for")
        except BaseException:
            self.abort()
            raise

    def _log(self, _user, level, text):
        try:
            text = text.decode(errors="replace")
            if level == 0:
                self.said = text  # the exception's text
            else:
                log.log((logging.WARNING, logging.INFO, logging.DEBUG)[min(level, 3) - 1], text)
        except BaseException as error:  # pylint: disable=broad-except
            self.raised = error

    def _open(self, path, settings, tensors, extra):
        lib = self.library
        error = ctypes.create_string_buffer(ERROR_BYTES)
        texts = [text.encode() for text in settings]
        path = None if path is None else os.fsencode(path)
        status = lib.gf_open_text(path, (_S * len(texts))(*texts), len(texts), 0, tensors,
                                  len(tensors), None, extra, len(extra), self.log, None,
                                  self.take, error, ctypes.byref(_P()), ctypes.byref(self.gf))
        if status < 0:
            raise Error(lib.gf_status_name(status).decode(), error.value.decode(errors="replace"))

    def _take(self, alignment, size):
        self.memory = torch.empty(size + alignment, dtype=torch.uint8)
        return -(-self.memory.data_ptr() // alignment) * alignment

    # -- calls --

    def _must(self, name, status):
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised
        if status < 0:
            said, self.said = self.said, None  # of a call that was refused; else what has failed
            failed = self.library.gf_error_text(self.gf).decode(errors="replace")
            kind = RankLost if status in LOST else Error
            raise kind(self.library.gf_status_name(status).decode(), failed or said or name)
        return status

    def call(self, name, *arguments):
        """A status below 0 is raised; the answer of a call without a status is returned."""
        with self.lock:
            if self.forked:
                raise Error("GF_ERR_STATE", f"{name}: in a forked child; the parent has the job")
            if not self.gf:
                raise Error("GF_ERR_STATE", f"{name}: after close()")
            answer = getattr(self.library, name)(self.gf, *arguments)
            return answer if CALLS[name][0] is not None else self._must(name, answer)

    def wait(self, name, *arguments, until=None):
        """False: `until` has passed."""
        while self.call(name, *arguments, WAIT_NS) == AGAIN:
            if until is not None and time.monotonic() > until:
                return False
        return True

    def request(self, name, *arguments, until=None):
        """One collective, from its post to its end. False: `until` has passed, and the job is to be
        aborted."""
        request = self.posted = _Request()
        try:
            while self.call(name, *arguments, request) == FULL:
                pass  # eight are under way
            return self.wait("gf_request_wait_for", request, until=until)
        except Exception:
            raise
        except BaseException:  # Ctrl-C: the request's memory is still the library's
            self.abort()
            raise

    # -- the end --

    def abort(self):
        """The others hear of it at once. Nothing is waited for."""
        with self.lock:
            _jobs.discard(self)
            if self.forked or not self.gf:
                return
            self.library.gf_abort(self.gf)
            self.library.gf_heartbeat(self.gf)
            self._give_back()

    def close(self, until=None):
        """Waits for the other ranks, at most until `until`. First by a barrier: to ranks that wait
        for one that has begun to close it lags, and they would hear of it by their timeout."""
        with self.lock:
            _jobs.discard(self)
            if self.forked or not self.gf:
                return
        left = False
        try:
            left = self.request("gf_barrier", until=until) and \
                self.wait("gf_close_wait_for", until=until)
        finally:
            with self.lock:
                if not left:
                    self.library.gf_abort(self.gf)
                self._give_back()

    def _give_back(self):
        self.stepping = False
        if self.detach is not None:
            self.detach()
        self.library.gf_close(self.gf)
        self.gf = _P()
        self.memory = None


_jobs = set()  # that are open
_held = []  # by the thread that forks


def _before_fork():
    _held[:] = _jobs
    for job in _held:
        job.lock.acquire()  # no call is under way in the child


def _after_fork(in_child):
    for job in _held:
        job.forked = in_child
        job.lock.release()
    if in_child:
        _jobs.clear()


def _on_exception(kind, value, trace):
    """An exception that ends the program ends the job; one typed at a prompt does not."""
    if not (hasattr(sys, "ps1") or sys.flags.interactive):
        for job in list(_jobs):
            job.abort()
    _excepthook(kind, value, trace)


def _at_exit():
    for job in list(_jobs):
        try:
            if job.stepping:
                job.abort()
            else:
                job.close(time.monotonic() + LEAVE_S)
        except Error as error:
            log.warning("%s", error)


os.register_at_fork(before=_before_fork, after_in_parent=functools.partial(_after_fork, False),
                    after_in_child=functools.partial(_after_fork, True))
_excepthook, sys.excepthook = sys.excepthook, _on_exception
atexit.register(_at_exit)


class _Poller(threading.Thread):
    """progress=True: moves what is under way while backward computes."""

    def __init__(self, job, pause_s):
        super().__init__(name="gradientflow", daemon=True)
        self.job, self.pause_s = job, pause_s
        self.going = threading.Event()
        self.ended = False
        self.start()

    def run(self):
        job = self.job
        while True:
            self.going.wait()
            if self.ended:
                return
            with job.lock:
                if job.stepping and job.gf and self.going.is_set():
                    # a failure is told to the call that comes next in the program
                    if job.library.gf_step_poll(job.gf) != AGAIN:
                        self.going.clear()
            time.sleep(self.pause_s)

    def end(self):
        self.ended = True
        self.going.set()


# ---- memory of the library as tensors ----

class _DeviceMemory:
    def __init__(self, address, count, typestr):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": typestr,
                                         "data": (address, False), "version": 3}


def _at(address, like, dtype):
    """The tensor at `address` that is laid out as `like` is."""
    count = like.numel()
    if count == 0:
        return torch.empty_like(like, dtype=dtype)
    if like.is_cuda:
        raw = "<f4" if dtype == torch.float32 else "<i2"
        flat = torch.as_tensor(_DeviceMemory(address, count, raw), device=like.device).view(dtype)
    else:
        size = torch.empty(0, dtype=dtype).element_size()
        flat = torch.frombuffer((ctypes.c_char * (count * size)).from_address(address),
                                dtype=dtype)
    return flat.as_strided(like.shape, _strides(like))


def _is_dense(tensor):
    """Its elements fill one block of memory, in whatever order."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in
                               zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _strides(tensor):
    """Of its gradient, by autograd's rule."""
    if _is_dense(tensor):
        return tensor.stride()
    return torch.empty(tensor.shape, device="meta").stride()


def _bytes_of(tensor):
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)


class _Slot:
    """One parameter and its tensor of the library."""

    def __init__(self, index, name, param):
        self.index, self.name, self.param = index, name, param
        self.strides = _strides(param)
        self.declared = False
        self.view = None  # gf_gradient()
        self.address = 0
        self.weight = None  # gf_weight(), with an optimizer of the library's
        self.node = None  # the accumulator, which the graph holds by a weak pointer alone
        self.used = True  # by some rank, in the step that has ended


def _moments(optimizer, prefix):
    """The tensors of an optimizer's state, which are made now where it would make them in its first
    step: the library keeps their addresses."""
    params = [param for group in optimizer.param_groups for param in group["params"]
              if param.requires_grad]
    if not all(optimizer.state[param] for param in params) and \
            isinstance(optimizer, (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)):
        _moments_make(optimizer, params)
    shared = []
    for number, param in enumerate(params):
        for key, value in sorted(optimizer.state[param].items()):
            if value is None:
                continue
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"state: {type(optimizer).__name__} keeps {key} as a "
                                f"{type(value).__name__}; ranks share tensors alone")
            now = functools.partial(_moment, optimizer, param, key)
            shared.append((f"{prefix}{number}.{key}", value, now))
    return shared


def _moment(optimizer, param, key):
    return optimizer.state[param].get(key)


def _moments_make(optimizer, params):
    """By a step with gradients of zero and a rate of zero, after which all it made is zero."""
    if any(group.get("dampening") for group in optimizer.param_groups):
        raise ValueError("state: SGD with dampening begins otherwise than from zero; call its "
                         "step() once before")
    before = [param.grad for param in params]
    values = [(group, group["lr"], group.get("weight_decay", 0)) for group in
              optimizer.param_groups]
    made = [param for param in params if not optimizer.state[param]]
    for param in params:
        param.grad = torch.zeros_like(param) if not optimizer.state[param] else None
    for group, _, _ in values:
        group["lr"], group["weight_decay"] = 0.0, 0
    type(optimizer).step(optimizer)
    for group, rate, decay in values:
        group["lr"], group["weight_decay"] = rate, decay
    for param, grad in zip(params, before):
        param.grad = grad
    for param in made:
        for value in optimizer.state[param].values():
            if isinstance(value, torch.Tensor):
                value.zero_()


def _tensors_in(output):
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors_in(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors_in(value)
    elif hasattr(output, "__dataclass_fields__"):
        yield from _tensors_in(vars(output))


# ---- the wrapper ----

class DistributedDataParallel(torch.nn.Module):
    """torch.nn.parallel.DistributedDataParallel over GradientFlow.

    path: a configuration file, the same on all ranks, or None. Groups of settings stand over the
    file's: exchange={"wire": "bf16"}, link={"driver": "tcp"}. Rank, world and address are those of
    the launcher's environment.
    progress: a thread of this program's moves messages while backward computes.
    state: an optimizer, or a list of them, whose state all ranks share (elastic jobs, save()).
    no_decay: parameters for which the library's optimizer has no weight decay: a function of name
    and parameter.
    on_skip: what gradients are after a step that had a value that is not finite: "none" (an
    optimizer of torch's does nothing then), or "nan" for a GradScaler.
    broadcast_buffers, find_unused_parameters, gradient_as_bucket_view, static_graph, device_ids,
    output_device, bucket_cap_mb, process_group: as of DDP; those for which there is nothing to do
    here are accepted."""

    def __init__(self, module, path=None, device_ids=None, output_device=None, dim=0,
                 broadcast_buffers=True, process_group=None, bucket_cap_mb=None,
                 find_unused_parameters=False, check_reduction=False,
                 gradient_as_bucket_view=True, static_graph=False, *, progress=False, state=(),
                 no_decay=None, on_skip="none", **settings):
        super().__init__()
        del device_ids, output_device, dim, bucket_cap_mb, find_unused_parameters
        del check_reduction, static_graph
        if process_group is not None:
            raise ValueError("process_group: the job is all ranks of the launcher; "
                             "torch.distributed has groups")
        if on_skip not in ("none", "nan"):
            raise ValueError(f"on_skip={on_skip!r}: allowed are 'none' and 'nan'")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path={path!r}: a configuration file, or None")
        _texts(settings)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self._views = gradient_as_bucket_view
        self._on_skip = on_skip
        self._sync = True  # not inside of no_sync()
        self._expect = False  # the newest forward pass is to be followed by an exchange
        self._forward_sync = True  # buffers are to be broadcast by the next forward pass
        self._armed = False  # _finish() is queued behind the backward pass that runs
        self._whole = False  # a step has ended and is not yet said to be applied
        self._skipped = False
        self._joining = None
        self._samples = None
        self._metrics = {}
        self._slots = self._make_slots(no_decay)
        settings = self._defaults(path, settings)
        self._norm_is_early = self._clips_sparse(path, settings)
        self._shared, self._mirrors = self._make_shared(path, state, settings)
        self._job = _Job(path, _texts(settings), self._tensors, self._extras)
        self._job.detach = self._detach
        self._poller = _Poller(self._job, progress if progress is not True else 0.0002) \
            if progress else None
        self._own = self._job.call("gf_weight", 0) == 0  # the optimizer is the program's
        try:
            self._begin_together()
        except BaseException:
            self.abort()
            raise
        self._hook()

    # -- what is made once --

    def _make_slots(self, no_decay):
        """Tensors in the order in which backward is thought to end them."""
        named = [(name, param) for name, param in self.module.named_parameters()
                 if param.requires_grad]
        if not named:
            raise RuntimeError("DistributedDataParallel: no parameter of this module requires a "
                               "gradient")
        slots = []
        for index, (name, param) in enumerate(reversed(named)):
            if param.dtype not in TYPES:
                raise TypeError(f"{name} is {param.dtype}; the library sums float32, float16 and "
                                "bfloat16")
            slots.append(_Slot(index, name, param))
        if len({slot.param.device for slot in slots}) > 1:
            raise ValueError("parameters lie on several devices; the library knows one a rank")
        flags = [NO_DECAY if no_decay is not None and no_decay(slot.name, slot.param) else 0
                 for slot in slots]
        self._tensors = (_Tensor * len(slots))(*[
            _Tensor(slot.name.encode()[-47:], slot.param.numel(), flag, TYPES[slot.param.dtype])
            for slot, flag in zip(slots, flags)])
        return slots

    def _defaults(self, path, settings):
        """DDP averages, and waits for half an hour. A file that averages over samples does so."""
        settings = {group: dict(values) if isinstance(values, dict) else values
                    for group, values in settings.items()}
        self._divides = False
        exchange = settings.setdefault("exchange", {})
        if isinstance(exchange, dict):
            asked = "average" in exchange or _in_file(path, "average", "samples")
            # the copy into the pool divides, so that nobody reads the gradients once more
            self._divides = not asked and all(slot.param.dtype == torch.float32 and
                                              not slot.param.is_cuda for slot in self._slots)
            if not asked:
                exchange["average"] = "sum" if self._divides else "ranks"
            if path is None:
                exchange.setdefault("timeout", "30 min")
        device = self._slots[0].param.device
        if device.type == "cuda":
            settings.setdefault("device", {})
            settings["device"].setdefault("driver", "cuda")
            if device.index is not None:
                settings["device"].setdefault("ordinal", device.index)
        elif device.type != "cpu":
            raise ValueError(f"parameters lie on {device}; the library knows cpu and cuda")
        return settings

    @staticmethod
    def _clips_sparse(path, settings):
        """The step makes the norm that clips: averages that are scaled after it do not count."""
        sparse, optimizer = settings.get("sparse", {}), settings.get("optimizer", {})
        if not isinstance(sparse, dict) or not isinstance(optimizer, dict):
            return False  # what they are is refused
        is_sparse = sparse["enabled"] if "enabled" in sparse else \
            _in_file(path, "sparse", r"\{[^}]*\benabled\s*[=:]\s*true")
        clips = optimizer["clip_norm"] if "clip_norm" in optimizer else \
            _in_file(path, "clip_norm", r"[0-9.]*[1-9]\S*")
        return _setting(is_sparse).lower() == "true" and \
            _setting(clips) not in ("false", "0", "0.0")

    def _make_shared(self, path, state, settings):
        """What a generation, a saved state and a rank that comes in have in common."""
        optimizers = [state] if isinstance(state, torch.optim.Optimizer) else list(state)
        elastic = settings.get("job", {}).get("elastic") or _in_file(path, "elastic", "true") or \
            any(name in os.environ for name in ("GF_ELASTIC", "GF_WORLD_MAX", "GF_REJOIN"))
        self._extras, mirrors = (_Extra * 0)(), []
        self._survives = bool(elastic or optimizers)
        if not self._survives:
            return [], mirrors
        own = settings.get("optimizer", {}).get("kind", "none") == "none" and \
            not _in_file(path, "kind", "(sgd|lars|adamw)")
        shared = [("param." + slot.name, slot.param.data, functools.partial(getattr, slot, "param"))
                  for slot in self._slots if own]
        frozen = [(name, param) for name, param in self.module.named_parameters()
                  if not param.requires_grad]
        shared += [("param." + name, param.data, None) for name, param in frozen]
        for name, buffer in self.module.named_buffers():
            # forward writes buffers when a step may be under way; their copies change with it
            mirrors.append((buffer, buffer.detach().cpu().clone()))
            shared.append(("buffer." + name, mirrors[-1][1], None))
        for number, optimizer in enumerate(optimizers):
            shared += _moments(optimizer, f"optimizer{number}.")
        for name, tensor, _ in shared:
            if tensor.is_cuda or not _is_dense(tensor):
                raise ValueError(f"state: {name} is not one block of host memory")
        self._extras = (_Extra * len(shared))(*[
            _Extra(name.encode(), tensor.data_ptr(), tensor.numel() * tensor.element_size())
            for name, tensor, _ in shared])
        return shared, mirrors

    def _begin_together(self):
        """The same parameters and buffers on all ranks: those of rank 0, or of the job that this
        rank has come into."""
        came_in = self._job.call("gf_rejoined")
        self._take_addresses(keep=came_in)
        if came_in:
            self._take_shared()
            return
        tensors = self._values()
        tensors += [tensor for name, tensor, _ in self._shared if name.startswith("optimizer")]
        self._broadcast_all(tensors, 0)
        self._keep_shared()
        if not self._own:
            self._job.call("gf_weights_written")

    def _values(self):
        """Parameters, of which fp32 weights of the library's count, and buffers."""
        values = [slot.param if self._own else slot.weight for slot in self._slots]
        values += [param for param in self.module.parameters() if not param.requires_grad]
        return values + list(self.module.buffers())

    def _hook(self):
        for slot in self._slots:
            slot.node = slot.param.expand_as(slot.param).grad_fn.next_functions[0][0]
            slot.node.register_hook(functools.partial(self._on_gradient, slot))

    def _take_addresses(self, keep):
        """Gradients are views of the pool; so are weights, with an optimizer of the library's.
        keep: the weights there count, not those that the parameters had."""
        for slot in self._slots:
            param = slot.param
            slot.address = self._job.call("gf_gradient", slot.index)
            slot.view = _at(slot.address, param, param.dtype)
            if self._own:
                continue
            weight = _at(self._job.call("gf_weight", slot.index), param, torch.float32)
            slot.weight = weight
            if not keep:
                weight.copy_(param.detach())
            if param.dtype != torch.float32:
                half = self._job.call("gf_weight_half", slot.index)
                if half == 0:
                    raise ValueError(f"{slot.name} is {param.dtype}, and optimizer.half_weights "
                                     "has no copy of that type")
                weight = _at(half, param, param.dtype)
            param.data = weight

    def _detach(self):
        """The library's memory goes: what points there becomes the program's own."""
        for slot in self._slots:
            param = slot.param
            if param.grad is not None and param.grad.data_ptr() == slot.address:
                param.grad = param.grad.clone()
            if not self._own:
                param.data = param.data.clone()
            slot.view, slot.weight, slot.address = None, None, 0

    # -- the same on all ranks --

    def _broadcast_all(self, tensors, root):
        group, size = [], 0
        for tensor in tensors:
            group.append(tensor)
            size += tensor.numel() * tensor.element_size()
            if size >= STAGE_BYTES:
                self._broadcast(group, size, root)
                group, size = [], 0
        if size:
            self._broadcast(group, size, root)

    def _broadcast(self, tensors, size, root):
        """Their bytes, in one message."""
        stage = torch.zeros((size + 3) // 4 * 4, dtype=torch.uint8)
        if self.rank == root:
            torch.cat([_bytes_of(tensor) for tensor in tensors], out=stage[:size])
        self._job.request("gf_broadcast", stage.data_ptr(), stage.numel() // 4, 0, root)
        if self.rank == root:
            return
        at = 0
        with torch.no_grad():
            for tensor in tensors:
                count = tensor.numel() * tensor.element_size()
                # a clone, for a view of another type wants its alignment
                part = stage[at:at + count].clone().view(tensor.dtype)
                tensor.detach().copy_(part.view(tensor.shape))
                at += count

    def _sum(self, values, reduction="sum"):
        data = (ctypes.c_float * len(values))(*values)
        self._job.request("gf_allreduce_by", REDUCTIONS[reduction], ctypes.addressof(data),
                          len(values), 0)
        return list(data)

    def all_reduce(self, tensor, op="sum"):
        """In place, on a contiguous tensor of float32, float16 or bfloat16 in host memory; op: sum,
        min or max. All ranks make the same calls in the same order, between steps."""
        if tensor.dtype not in TYPES or tensor.is_cuda or not tensor.is_contiguous():
            raise TypeError("all_reduce: a contiguous tensor of float32, float16 or bfloat16 in "
                            f"host memory, not {tensor.dtype} on {tensor.device}")
        self._applied()
        self._job.request("gf_allreduce_by", REDUCTIONS[op], tensor.data_ptr(), tensor.numel(),
                          TYPES[tensor.dtype])
        return tensor

    def broadcast(self, tensor, root=0):
        """In place, of any type."""
        self._applied()
        self._broadcast_all([tensor], root)
        return tensor

    def barrier(self):
        self._applied()
        self._job.request("gf_barrier")

    # -- forward and backward --

    def forward(self, *inputs, **kwargs):
        if not self._job.gf:
            if self.training and torch.is_grad_enabled():
                raise Error("", "a forward pass that trains, after close() or a failure")
            return self.module(*inputs, **kwargs)
        learns = torch.is_grad_enabled()
        if learns and self._whole and not self._own and not self._skipped:
            raise Error("GF_ERR_STATE", "the configuration has an optimizer (optimizer.kind), and "
                        "model.step(rate) did not apply the step; torch's wants kind = none")
        if learns and (self._armed or self._job.stepping):
            self.abort()
            raise Error("", "the backward pass before this one did not end: an exception in it "
                        "ends the job")
        self._applied()
        if learns:
            self._expect = self._sync
        root = 0
        if self._joining is not None and learns:
            root = self._joining.announce(self, True)
        if self._forward_sync and self.broadcast_buffers:
            self._broadcast_all(list(self.module.buffers()), root)
        self._forward_sync = learns and self._sync
        output = self.module(*inputs, **kwargs)
        if learns and self._sync:
            for tensor in _tensors_in(output):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    tensor.register_hook(self._arm)
        return output

    def _arm(self, *_gradient):
        """In a backward pass, the outer one where reentrant checkpoints run others inside."""
        if not self._armed and self._job.gf:
            self._armed = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _on_gradient(self, slot, *_unused):
        if not self._expect or not self._job.gf:
            return
        try:
            self._arm()
            if not self._job.stepping:
                self._step_begin()
            self._declare(slot)
        except BaseException:
            self._failed()
            raise

    def _step_begin(self):
        job = self._job
        with job.lock:
            job.call("gf_step_begin")
            job.stepping = True
            self._share = 1.0 / job.call("gf_world")
            for slot in self._slots:
                slot.declared = False
            if self._samples is not None:
                job.call("gf_step_samples", self._samples)
            for index, value in self._metrics.items():
                job.call("gf_step_metric", index, value)
            self._metrics = {}
            self._samples = None
        if self._poller is not None:
            self._poller.going.set()

    def _declare(self, slot):
        grad = slot.param.grad
        if grad.is_sparse:
            raise TypeError(f"{slot.name} has a sparse gradient; the library sums dense ones")
        queue = torch.cuda.current_stream().cuda_stream if grad.is_cuda else 0
        if slot.declared:
            raise Error("", f"{slot.name} got its gradient twice in one backward pass")
        slot.declared = True
        held = grad.data_ptr() == slot.address
        if self._divides:
            torch.mul(grad.detach(), self._share, out=slot.view)
        if held or self._divides:
            self._job.call("gf_tensor_ready", slot.index, queue)
            if self._views and not held:
                slot.param.grad = slot.view  # what it had is free for the gradient that comes next
            return
        if grad.stride() != slot.strides and grad.numel() > 0:
            grad = torch.empty_strided(grad.shape, slot.strides, dtype=grad.dtype,
                                       device=grad.device).copy_(grad)
        self._job.call("gf_tensor_copy", slot.index, grad.data_ptr(), queue)
        if self._views and not grad.is_cuda:
            slot.param.grad = slot.view

    def _finish(self):
        """Backward has ended: the averages become the parameters' gradients."""
        self._armed = False
        if not self._job.stepping:
            return
        try:
            self._exchange([slot for slot in self._slots if not slot.declared])
            self._take_gradients()
        except BaseException:
            self._failed()
            raise

    def _exchange(self, rest, shadow=False):
        """The rest of the step. A parameter that has no gradient on any rank keeps none, as its
        optimizer must not apply its decay to it; who has which is told only where some lack one."""
        job = self._job
        lacking = [slot for slot in rest if shadow or slot.param.grad is None]
        if rest and not shadow:
            job.call("gf_step_metric", LACKING, len(lacking))
        for slot in rest:
            if shadow or slot.param.grad is None:
                job.call("gf_tensor_skip", slot.index)
            else:
                self._declare(slot)  # what no_sync() has added up
        if self._poller is not None:
            self._poller.going.clear()
        job.wait("gf_step_wait_for")
        job.stepping = False
        self._skipped = job.call("gf_step_skipped")
        self._forward_sync = True
        for slot in self._slots:
            slot.used = True
        if not self._skipped and job.call("gf_metric", LACKING) > 0:
            lacks = set(lacking)
            used = [0.0 if slot in lacks else 1.0 for slot in self._slots]
            for slot, some in zip(self._slots, self._sum(used, "max")):
                slot.used = some > 0
        self._whole = True

    def _take_gradients(self):
        if self._skipped:
            for slot in self._slots:
                slot.param.grad = None if self._on_skip == "none" else \
                    torch.full_like(slot.param, float("nan"))
            return
        if self._slots[0].param.is_cuda:
            self._job.call("gf_queue_follow", torch.cuda.current_stream().cuda_stream)
        self._scale_halves()
        for slot in self._slots:
            if not slot.used:
                continue
            grad = slot.param.grad
            if grad is None or self._views:
                if grad is None or grad.data_ptr() != slot.address:
                    slot.param.grad = slot.view
            elif grad.data_ptr() != slot.address:
                grad.detach().copy_(slot.view)

    def _scale_halves(self):
        """Averages: 16-bit gradients may still have the scale with which they travelled."""
        half = self._job.call("gf_gradient_scale") if self._own else 1.0
        every = 1.0
        if self._joining is not None:
            every = self._joining.factor
        for slot in self._slots if (half != 1.0 or every != 1.0) else ():
            factor = every * (half if slot.param.dtype != torch.float32 else 1.0)
            if factor != 1.0:
                slot.view.mul_(factor)

    def _failed(self):
        """An exception in the library's part of a backward pass. An elastic job may go on."""
        self._armed = False
        if not isinstance(sys.exc_info()[1], RankLost) or not self._survives:
            self.abort()

    def _applied(self):
        """The first call of the library after the program's optimizer has run."""
        if not self._whole:
            return
        self._whole = False
        if self._shared and self._own and not self._skipped:
            self._keep_shared()
            self._job.call("gf_updated")

    def _keep_shared(self):
        for name, tensor, now in self._shared:
            if now is not None and (now() is None or now().data_ptr() != tensor.data_ptr()):
                raise Error("", f"{name} has moved in memory; the library shares the address that "
                            "it had when the job began")
        for buffer, mirror in self._mirrors:
            mirror.copy_(buffer.detach())

    def _take_shared(self):
        for buffer, mirror in self._mirrors:
            buffer.detach().copy_(mirror)

    # -- what a program may call --

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients add up on each rank; the first backward pass after it exchanges them."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def samples(self, count):
        """exchange.average = samples: this rank's gradients of the next step are the sum over so
        many samples."""
        self._samples = count

    def metric(self, value, index=0):
        """A number of this rank's that travels with the next step; metrics() has the sum."""
        if not 0 <= index < METRICS:
            raise IndexError(f"metric {index}: there are {METRICS}")
        self._metrics[index] = float(value)

    def metrics(self, index=0):
        return self._job.call("gf_metric", index)

    def step(self, rate=None):
        """The library's optimizer (optimizer={"kind": ..}); without a rate the one of `rate`."""
        if self._own:
            raise Error("GF_ERR_STATE", "step: optimizer.kind is none; torch's optimizer applies "
                        "the step")
        if not self._whole:
            raise Error("GF_ERR_STATE", "step: no step is whole; backward() comes before it")
        self._whole = False
        if rate is None:
            rate = self._job.call("gf_rate", self.steps - 1)
        if not self._skipped:
            self._keep_shared()
            self._job.call("gf_update", rate)
        for slot in self._slots:
            slot.param.grad = None

    def join(self, divide_by_initial_world_size=True, enable=True,
             throw_on_early_termination=False, step=None):
        """As DDP's, for ranks that do not have equally many batches: one that has run out adds
        nothing to the others' steps, until all have. Then all have the parameters of one that was
        the last. step: what such a rank does after each of those steps, so that its optimizer has
        the same state, as lambda: (optimizer.step(), optimizer.zero_grad())."""
        if enable and not divide_by_initial_world_size and not self._own and self._norm_is_early:
            raise ValueError("join: divide_by_initial_world_size=False scales averages after the "
                             "step, which with sparse exchange and optimizer.clip_norm has made "
                             "their norm before; allowed is True, or no clip_norm")
        return _Join(self, divide_by_initial_world_size, throw_on_early_termination, step) \
            if enable else contextlib.nullcontext()

    # -- elastic jobs --

    def survive(self):
        """The next generation, after RankLost or where `due`: the step under way is dropped, and
        parameters, buffers, moments of `state` and steps are what all ranks have in common. False:
        this rank has left (leave())."""
        if not self._survives:
            raise Error("", "survive() wants an elastic job: state=optimizer, or gf-run --elastic")
        try:
            self._applied()
        except RankLost:
            pass
        self._armed = self._whole = self._job.stepping = False
        if self._poller is not None:
            self._poller.going.clear()
        for slot in self._slots:
            slot.param.grad = None
        again = True
        while again:
            try:
                self._job.call("gf_regroup_begin")
                self._job.wait("gf_regroup_wait_for")
                again = not self.left and self.due > 0
            except RankLost as lost:  # another one, on the way
                log.warning("%s", lost)
        if self.left:
            return False
        self._take_addresses(keep=True)
        self._take_shared()
        self._forward_sync = True
        return True

    def leave(self):
        """This rank leaves with the next generation: it goes on until `due`, and then survive()."""
        self._applied()
        self._job.call("gf_leave")

    @property
    def due(self):
        """So many ranks wait to come in or to leave; the same on all ranks after a step."""
        self._applied()
        return self._job.call("gf_regroup_due")

    # -- state --

    def save(self, path, optimizer=None, **more):
        """Module, optimizer, the library's state (step, loss scale, its optimizer's moments) and
        whatever else the program names, in one file that is whole or not there. With sparse steps
        each rank saves a file of its own, else rank 0 alone."""
        self._applied()
        size = self._job.call("gf_state_bytes")
        data = torch.empty((size + 7) // 8, dtype=torch.int64)
        self._job.call("gf_state_save", data.data_ptr(), size)
        part = f"{path}.{os.getpid()}.part"
        with open(part, "wb") as file:
            torch.save({"gradientflow": data.view(torch.uint8)[:size].clone(),
                        "module": self.module.state_dict(), "more": more,
                        "optimizer": None if optimizer is None else optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)

    def load(self, path, optimizer=None):
        """On all ranks, the same save; returns what else save() was given."""
        self._applied()
        kept = torch.load(path, map_location="cpu")
        data = torch.empty((kept["gradientflow"].numel() + 7) // 8, dtype=torch.int64)
        size = kept["gradientflow"].numel()
        data.view(torch.uint8)[:size] = kept["gradientflow"]
        self._job.call("gf_state_load", data.data_ptr(), size)
        self.module.load_state_dict(kept["module"])
        if optimizer is not None:
            self._load_optimizer(optimizer, kept["optimizer"])
        self._keep_shared()
        return kept["more"]

    def _load_optimizer(self, optimizer, kept):
        """In place where the library has the addresses: it has loaded those tensors itself."""
        if kept is None:
            raise ValueError("load: no optimizer was saved")
        if not any(name.startswith("optimizer") for name, _, _ in self._shared):
            optimizer.load_state_dict(kept)
            return
        for group, other in zip(optimizer.param_groups, kept["param_groups"]):
            group.update({key: value for key, value in other.items() if key != "params"})

    def stats(self):
        """What the library counts (struct gf_stats) as a dictionary."""
        stats = _Stats(size_bytes=ctypes.sizeof(_Stats))
        self._job.call("gf_stats_read", ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[1:]}

    left = property(lambda self: self._job.call("gf_left"))
    rank = property(lambda self: self._job.call("gf_rank"))
    world = property(lambda self: self._job.call("gf_world"))
    steps = property(lambda self: self._job.call("gf_steps"))
    skipped = property(lambda self: self._skipped)
    loss_scale = property(lambda self: self._job.call("gf_loss_scale"))
    rejoined = property(lambda self: self._job.call("gf_rejoined"))

    def close(self):
        """Waits for the other ranks; the module stays as it is."""
        if self._job.gf and not self._job.forked:
            self._applied()
        self._end_poller()
        self._job.close()

    def abort(self):
        """Ends the job on all ranks, at once."""
        self._end_poller()
        self._job.abort()

    def _end_poller(self):
        if self._poller is not None:
            self._poller.end()
            self._poller = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.close()
        else:
            self.abort()

    def __getstate__(self):
        raise TypeError("a DistributedDataParallel is of one process; save its state_dict()")

    def __deepcopy__(self, memo):
        raise TypeError("a DistributedDataParallel has one job; copy its .module")


class _Join:
    """join(): before each forward pass all ranks say whether they still have inputs."""

    def __init__(self, model, divide_by_all, throw, step):
        self.model, self.divide_by_all, self.throw, self.step = model, divide_by_all, throw, step
        self.factor = 1.0  # of the averages
        self.active = self.syncs = self.casts = 0

    def __enter__(self):
        self.model._joining = self
        return self

    def announce(self, model, active):
        """Returns the rank whose buffers count: the highest of those with inputs."""
        casts = model._forward_sync and model.broadcast_buffers and active
        self.active, self.syncs, self.casts = model._sum(
            [float(active), float(active and model._sync), float(casts)])
        if self.active < model.world and self.throw:
            raise RuntimeError("join: a rank has run out of inputs")
        if not self.divide_by_all and self.active > 0:
            self.factor = model.world / self.active
        if self.casts == 0:
            return 0
        return int(model._sum([float(model.rank) if active else 0.0], "max")[0])

    def shadow(self, model):
        """A round of the others'. False: there was none any more."""
        model._applied()
        root = self.announce(model, False)
        if self.active == 0:
            return False
        if self.casts:
            model._broadcast_all(list(model.module.buffers()), root)
        if self.syncs:
            model.samples(0)
            model._step_begin()
            model._exchange(model._slots, shadow=True)
            for slot in model._slots:
                slot.param.grad = None
            model._take_gradients()
            if self.step is not None:
                self.step()
            for slot in model._slots:
                slot.param.grad = None
        return True

    def __exit__(self, kind, value, trace):
        model = self.model
        if kind is not None:
            model.abort()
            model._joining = None
            return
        rounds = 0
        while self.shadow(model):
            rounds += 1
        model._joining = None
        last = model._sum([float(model.rank + 1) if rounds == 0 else 0.0], "max")[0]
        model._broadcast_all(model._values(), int(last) - 1)
        if not model._own:
            model._job.call("gf_weights_written")
