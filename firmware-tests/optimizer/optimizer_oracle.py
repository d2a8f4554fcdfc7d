#!/usr/bin/python3
"""Makes optimizer_oracle.inc: what optimizers that nobody here wrote do with the gradients of test_optimizer.c, in float64.

SGD, AdamW and clipping: PyTorch (Debian's python3-torch). LARS with the rate inside of the momentum, as published: objax
(google/objax 9dd7dc3, objax/optimizer/lars.py). LARS with Nesterov's momentum, at one rate: timm
(huggingface/pytorch-image-models 9d8ccd2b, timm/optim/lars.py). The two are not in Debian: hand in folders that hold these files. What objax wants of jax is numpy's here.

    optimizer_oracle.py --objax FOLDER --timm FOLDER > firmware-tests/optimizer/optimizer_oracle.inc
"""
import argparse
import importlib.util
import os
import sys
import types

STEPS = 100
COUNTS = (96, 7, 65)  # the second is a bias: no decay, no ratio, zero at first


def value(tensor, step, elem):
    """In [-1, 1), a multiple of 2^-15; the same integers in test_optimizer.c."""
    x = (tensor * 0x9E3779B1 + step * 0x85EBCA77 + elem * 0xC2B2AE3D + 0x27D4EB2F) & 0xFFFFFFFF
    for _ in range(2):
        x ^= x >> 15
        x = (x * 0x2C1B3C6D) & 0xFFFFFFFF
    x ^= x >> 16
    return ((x & 0xFFFF) - 32768) / 32768


def gradient(np, tensor, step):
    """Half of it lasts; of the third tensor step 10 brings nothing."""
    if tensor == 2 and step == 10:
        return np.zeros(COUNTS[tensor])
    return np.array([(value(tensor, step, e) + value(tensor, 1000, e)) / 2 for e in range(COUNTS[tensor])])


def weights(np, tensor):
    return np.array([0.0 if tensor == 1 else value(tensor, 0, e) for e in range(COUNTS[tensor])])


def rate_of(case, step):
    return case["rate"] * (1.0 if case.get("constant") else (1 + step % 7) / 4)


CASES = [
    dict(name="sgd", kind="SGD", rate=0.05, decay=0.01),
    dict(name="sgd_momentum", kind="SGD", rate=0.05, momentum=0.9, decay=0.01),
    dict(name="sgd_nesterov", kind="SGD", rate=0.05, momentum=0.9, decay=0.01, nesterov=True),
    dict(name="sgd_clipped", kind="SGD", rate=0.05, momentum=0.9, decay=0.01, clip=4.5),
    dict(name="lars", kind="LARS", rate=2.0, momentum=0.9, decay=0.01, eta=0.001, epsilon=1e-5),
    dict(name="lars_clipped", kind="LARS", rate=2.0, momentum=0.9, decay=0.01, eta=0.001, epsilon=1e-5, clip=4.5),
    dict(name="lars_nesterov", kind="LARS", rate=2.0, momentum=0.9, decay=0.01, eta=0.001, epsilon=1e-5, nesterov=True,
         constant=True),
    dict(name="adamw", kind="ADAMW", rate=0.004, decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8),
    dict(name="adamw_clipped", kind="ADAMW", rate=0.004, decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-3, clip=4.5),
]


def module_of(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def objax_lars(np, folder):
    """The class, over stand-ins for the containers that it takes its variables from."""
    class Box:
        def __init__(self, held):
            self.value = held

    class Ref:
        def __init__(self, box):
            self.__dict__["box"] = box

        value = property(lambda self: self.box.value, lambda self, to: setattr(self.box, "value", to))

    class All(list):
        def subset(self, _):
            return self

    def stand_in(name, **names):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(names)

    stand_in("jax", numpy=np)
    sys.modules["jax.numpy"] = np
    stand_in("objax")
    stand_in("objax.module", ModuleList=list, Module=object)
    stand_in("objax.module_base", Module=object)
    stand_in("objax.typing", JaxArray=object)
    stand_in("objax.util", class_name=str)
    stand_in("objax.variable", TrainRef=Ref, StateVar=Box, TrainVar=Box, VarCollection=All)
    return module_of(os.path.join(folder, "lars.py"), "objax_lars").LARS, Box, All


def run(np, torch, args, case):
    """Final weights, and the norm of each step."""
    wants = [torch.tensor(weights(np, t), dtype=torch.float64, requires_grad=True) for t in range(3)]
    decay, momentum = case["decay"], case.get("momentum", 0.0)
    groups = [{"params": [wants[0], wants[2]], "weight_decay": decay}, {"params": [wants[1]], "weight_decay": 0.0}]
    options = {"lr": case["rate"]}
    boxes = None
    if case["kind"] == "SGD":
        steps = torch.optim.SGD(groups, momentum=momentum, nesterov=case.get("nesterov", False), **options)
    elif case["kind"] == "ADAMW":
        steps = torch.optim.AdamW(groups, betas=(case["beta1"], case["beta2"]), eps=case["epsilon"], **options)
    elif case.get("nesterov"):
        lars = module_of(os.path.join(args.timm, "lars.py"), "timm_lars").Lars
        steps = lars(groups, momentum=momentum, nesterov=True, trust_coeff=case["eta"], eps=case["epsilon"], **options)
    else:  # objax has no groups: the bias goes through PyTorch's SGD, its gradient times the rate
        lars, box, all_of = objax_lars(np, args.objax)
        boxes = all_of([box(weights(np, 0)), box(weights(np, 2))])
        inner = lars(boxes, momentum=momentum, weight_decay=decay, tc=case["eta"], eps=case["epsilon"])
        steps = torch.optim.SGD([wants[1]], lr=1.0, momentum=momentum)
    norms = []
    for step in range(1, STEPS + 1):
        rate = rate_of(case, step)
        for t in range(3):
            wants[t].grad = torch.tensor(gradient(np, t, step), dtype=torch.float64)
        norms.append(float(torch.nn.utils.clip_grad_norm_(wants, case.get("clip", float("inf")))))
        if boxes is not None:
            inner(rate, [wants[0].grad.numpy().copy(), wants[2].grad.numpy().copy()])
            wants[1].grad *= rate
        else:
            for group in steps.param_groups:
                group["lr"] = rate
        steps.step()
    finals = [want.detach().numpy() for want in wants]
    if boxes is not None:
        finals[0], finals[2] = boxes[0].value, boxes[1].value
    return np.concatenate(finals), norms


def numbers(values):
    return ", ".join("%.11g" % v for v in values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--objax", default="")
    parser.add_argument("--timm", default="")
    args = parser.parse_args()
    try:
        import numpy as np
        import torch
    except ImportError as absent:
        sys.exit("optimizer_oracle.py: skipped, %s (apt-get install python3-torch)" % absent)
    for folder, name in ((args.objax, "lars.py"), (args.timm, "lars.py")):
        if not os.path.isfile(os.path.join(folder, name)):
            sys.exit("optimizer_oracle.py: skipped, no %s in \"%s\" (--objax, --timm)" % (name, folder))
    print("/* Made by optimizer_oracle.py with PyTorch %s, objax 9dd7dc3 and timm 9d8ccd2b: not written by hand. */"
          % torch.__version__)
    print("#define ORACLE_STEPS %du\n" % STEPS)
    print("static const struct oracle_case oracle_cases[] = {")
    for case in CASES:
        finals, norms = run(np, torch, args, case)
        fields = [".%s = %sf" % (key, repr(case[key])) for key in
                  ("rate", "momentum", "decay", "eta", "epsilon", "beta1", "beta2", "clip") if key in case]
        fields += [".%s = true" % key for key in ("nesterov", "constant") if case.get(key)]
        print("    {.name = \"%s\", .kind = GF_OPTIMIZER_%s, %s, .weights = {%s}},"
              % (case["name"], case["kind"], ", ".join(fields), numbers(finals)))
    print("};\n\n/* Of the gradient of each step, all tensors together, before any clipping. */")
    print("static const double oracle_norms[ORACLE_STEPS] = {%s};" % numbers(norms))


main()
