"""A training step of PyTorch with the library, through ctypes, beside the same step without: what
each takes, and how far their weights are apart. Weights and gradients of the model are views of the
library's pools in device memory. --host: the same calls on the host, without PyTorch, on a line
that is fitted.  Exit code 77: there is no PyTorch, or it has no GPU. Never run on a card yet."""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time

SKIPPED = 77


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("elem_count", ctypes.c_uint64), ("flags", ctypes.c_uint32),
                ("type", ctypes.c_uint32)]


class Footprint(ctypes.Structure):
    _fields_ = [("control_bytes", ctypes.c_uint64), ("exchange_bytes", ctypes.c_uint64),
                ("device_bytes", ctypes.c_uint64)]


class Library:
    """The calls of a step. A status below 0 ends the program with the call's name and the status."""

    def __init__(self, path, config, counts):
        self.calls = ctypes.CDLL(path)
        for name in ("gf_gradient", "gf_weight"):
            getattr(self.calls, name).restype = ctypes.c_uint64
        self.calls.gf_status_name.restype = ctypes.c_char_p
        self.config = ctypes.create_string_buffer(1 << 16)  # struct gf_config is smaller
        error = ctypes.create_string_buffer(512)
        if self.calls.gf_config_load(config.encode(), self.config, error) < 0:
            sys.exit(error.value.decode())
        tensors = (Tensor * len(counts))(*[Tensor(b"t%d" % i, n, 0, 0) for i, n in enumerate(counts)])
        need = Footprint()
        self.must("gf_measure", self.config, tensors, len(counts), ctypes.byref(need))
        self.memory = ctypes.create_string_buffer(need.control_bytes + 64)
        at = (ctypes.addressof(self.memory) + 63) // 64 * 64
        self.gf = ctypes.c_void_p()
        self.must("gf_open", self.config, tensors, len(counts), ctypes.c_void_p(at),
                  ctypes.c_uint64(need.control_bytes), ctypes.byref(self.gf))
        self.must("gf_open_wait", self.gf)
        self.count = len(counts)
        self.gradients = [self.calls.gf_gradient(self.gf, i) for i in range(self.count)]
        self.weights = [self.calls.gf_weight(self.gf, i) for i in range(self.count)]

    def must(self, call, *arguments):
        status = getattr(self.calls, call)(*arguments)
        if status < 0:
            sys.exit(f"{call}: {self.calls.gf_status_name(status).decode()}")

    def step(self, backward, rate, stream=0):
        self.must("gf_step_begin", self.gf)
        backward()
        self.must("gf_tensors_ready", self.gf, 0, self.count, ctypes.c_uint64(stream))
        self.must("gf_step_wait", self.gf)
        self.must("gf_update", self.gf, ctypes.c_float(rate))
        self.must("gf_queue_follow", self.gf, ctypes.c_uint64(stream))

    def close(self):
        self.must("gf_close", self.gf)


def fit_on_host(options):
    """y = 3 x + 1 by two weights of one element each."""
    library = Library(options.library, options.config, [1, 1])
    slope, offset = (ctypes.c_float.from_address(at) for at in library.weights)
    gradients = [ctypes.c_float.from_address(at) for at in library.gradients]

    def backward():
        errors = [(slope.value * x + offset.value - (3 * x + 1), x) for x in (i / 16 for i in range(16))]
        gradients[0].value = sum(e * x for e, x in errors) / 16
        gradients[1].value = sum(e for e, _ in errors) / 16

    for _ in range(400):
        library.step(backward, 0.2)
    print(f"y = {slope.value:.2f} x + {offset.value:.2f}")
    library.close()


class View:
    """fp32 device memory, as PyTorch takes it in."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"shape": tuple(shape), "typestr": "<f4", "data": (address, False),
                                         "version": 3}


def device_name(torch):
    return f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}"


def train(torch, options, with_library):
    torch.manual_seed(1)
    layers = []
    for _ in range(8):
        layers += [torch.nn.Linear(2048, 2048), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).cuda()
    inputs = torch.randn(256, 2048, device="cuda")
    # the library's order is that in which backward ends them
    params = list(model.parameters())[::-1]
    stream = torch.cuda.current_stream().cuda_stream
    library = None
    if with_library:
        library = Library(options.library, options.config, [p.numel() for p in params])
        for i, param in enumerate(params):
            weight = torch.as_tensor(View(library.weights[i], param.shape), device="cuda")
            weight.copy_(param.data)
            param.data = weight
            param.grad = torch.as_tensor(View(library.gradients[i], param.shape), device="cuda")
        torch.cuda.synchronize()
    else:
        optimizer = torch.optim.SGD(params, lr=0.01, momentum=0.9, weight_decay=0.0005)

    def backward():
        for param in params:
            if param.grad is not None:
                param.grad.zero_()
        model(inputs).square().mean().backward()

    times = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        if library is not None:
            library.step(backward, 0.01, stream)
        else:
            backward()
            optimizer.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    weights = torch.cat([p.detach().reshape(-1).clone() for p in params])
    if library is not None:
        torch.cuda.synchronize()
        library.close()
    return statistics.median(times[len(times) // 4:]), weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--json")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--host", action="store_true")
    options = parser.parse_args()
    if options.host:
        return fit_on_host(options)
    try:
        import torch
    except ImportError:
        print("skipped: no PyTorch")
        return SKIPPED
    if not torch.cuda.is_available():
        print("skipped: PyTorch has no GPU")
        return SKIPPED
    own_ms, own = train(torch, options, False)
    with_ms, ours = train(torch, options, True)
    apart = float((own - ours).norm() / own.norm())
    print(f"a step with the library {with_ms:.2f} ms, PyTorch's own {own_ms:.2f} ms; "
          f"weights {apart:.1e} apart after {options.steps} steps; {device_name(torch)}")
    if options.json and (os.environ.get("GF_RANK", "0") == "0"):
        with open(options.json, "w") as file:
            json.dump({"with_ms": with_ms, "own_ms": own_ms, "apart": apart}, file)
    return 0 if apart < 1e-3 else 1


sys.exit(main())
